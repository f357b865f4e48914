"""pad: a value, the mirrored tensor, its border or itself around it, in whatever order it lies."""

from __future__ import annotations

from collections.abc import Iterator

from codegen_cc.dim import product
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Layout, Number, Operator
from codegen_cc.operators.dtype_rules import only_single
from codegen_cc.operators.operands import all_constant
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.operators.told import unless
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.region.graph import RegionNode

MODES = ("constant", "reflect", "edge", "wrap")


def supports(node: Node) -> str | None:
    """None if the kernel can compute the node, else the reason."""
    attrs, shape = node.attrs, node.operand("input").shape
    if attrs["mode"] not in MODES:
        return f"mode {attrs['mode']}; need one of {', '.join(MODES)}"
    for axis, extent in enumerate(shape):
        widths = (attrs["pads"][axis], attrs["pads"][axis + len(shape)])
        if min(widths) < 0:
            return f"widths {list(widths)} of axis {axis}; need none below 0"
        if not isinstance(extent, int) or max(widths) == 0:
            continue
        if attrs["mode"] == "reflect" and max(widths) >= extent:
            return f"widths {list(widths)} of axis {axis}; need less than its extent {extent}"
        if attrs["mode"] in ("edge", "wrap") and extent == 0:
            return f"axis {axis} has extent 0; need an element to repeat"
    return all_constant(node)


def is_pad_as_tvm(node: Node) -> bool:
    """Whether TVM finds the elements, too: it does not look for those of a second turn."""
    rank = len(node.operand("input").shape)
    pairs = zip(node.operand("input").shape, node.attrs["pads"][:rank], strict=True)
    return node.attrs["mode"] != "wrap" or all(
        before <= 1 or (isinstance(extent, int) and before <= extent) for extent, before in pairs
    )


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_pad``; innermost axes that are not padded move as one."""
    attrs, shape = node.node.attrs, node.node.shape
    x = builder.compact(builder.tensor(node.role("input")))
    order = x.order()
    before, after = attrs["pads"][: len(shape)], attrs["pads"][len(shape) :]
    padded = [i for i, axis in enumerate(order) if before[axis] or after[axis]]
    split = padded[-1] + 1 if padded else min(1, len(order))
    y = builder.space(shape, node.node.dtype, order)
    axes = order[:split]
    fields: dict[str, object] = {
        "mode": f"EXT_PAD_{attrs['mode'].upper()}",
        "value": float(attrs["value"]),
        "ndim": max(len(axes), 1),
        "shape": [x.shape[axis] for axis in axes] or [1],
        "before": [before[axis] for axis in axes] or [0],
        "after": [after[axis] for axis in axes] or [0],
        "inner": product(x.shape[axis] for axis in order[split:]),
    }
    comment = f"{node.node.composite} {attrs['mode']}: {list(x.shape)} -> {list(shape)}"
    builder.call("ext_pad", [Struct("ext_pad_params", fields), x, y], y, comment)
    builder.place(node.output, y)


def _numbers(node: Node) -> dict[str, Number]:
    return {"mode": f"EXT_PAD_{node.attrs['mode'].upper()}", "value": float(node.attrs["value"])}


def _samples() -> Iterator[Sample]:
    for mode in MODES:
        attrs = {"pads": [0, 1, 0, 1], "mode": mode, "value": 0.0}
        yield Sample(mode, sample_node("pad", {"input": ((4, 32), REAL)}, (4, 34), **attrs))


PAD = Operator(
    "pad",
    roles=("input",),
    attributes={
        "pads": "before each axis, then after each",
        "mode": ", ".join(MODES),
        "value": "of the mode constant",
    },
    layout=Layout.KEEP,
    facts=Facts(
        names=("mode", "value"),
        numbers=_numbers,
        told_by={"pads": (), "mode": ("mode",), "value": ("value",)},
        neutral={"value": unless("value", 0)},
    ),
    kernels=Kernels(lower, only_single, supports),
    samples=_samples,
)

OPERATORS = (PAD,)
