"""argreduce and cumsum: kernels that see x as [outer, reduce, inner] in memory order."""

from __future__ import annotations

from collections.abc import Iterator

from codegen_cc.node import Node
from codegen_cc.operator import Kernels, Operator
from codegen_cc.operators.dtype_rules import one_of, only_float32, operands_only
from codegen_cc.operators.normalisation import adjacent
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.operators.told import along_axis, flags, unless
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.region.graph import RegionNode

ARG_KINDS = ("argmax", "argmin")


def check_dtypes(node: Node) -> str | None:
    """float32; the positions that ``argreduce`` gives are int64."""
    if node.op != "argreduce":
        return only_float32(node)
    return operands_only(node, ("float32",)) or one_of("result", node.dtype, ("int64",))


def supports(node: Node) -> str | None:
    """None if the kernels can compute the node, else the reason."""
    if node.op == "argreduce" and node.attrs["kind"] not in ARG_KINDS:
        return f"argreduce kind {node.attrs['kind']}; need one of {', '.join(ARG_KINDS)}"
    extent = node.operand("input").shape[node.attrs["axis"]]
    if node.op == "argreduce" and extent == 0:
        return "axis of extent 0; need 1 element at least"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_argreduce`` or ``ext_cumsum``."""
    (_argreduce if node.node.op == "argreduce" else _cumsum)(node, builder)


def _argreduce(node: RegionNode, builder: PlanBuilder) -> None:
    attrs, axis = node.node.attrs, node.node.attrs["axis"]
    x, outer, reduce, inner = adjacent(builder, builder.tensor(node.role("input")), [axis])
    kept = [a for a in x.order() if a != axis]
    order = (axis, *kept) if attrs["keepdims"] else tuple(a - (a > axis) for a in kept)
    y = builder.space(node.node.shape, node.node.dtype, order)
    comment = f"{node.node.composite} axis {axis}: {list(x.shape)} -> {list(y.shape)}"
    least = int(attrs["kind"] == "argmin")
    builder.call("ext_argreduce", [least, outer, reduce, inner, x, y], y, comment)
    builder.place(node.output, y)


def _cumsum(node: RegionNode, builder: PlanBuilder) -> None:
    attrs = node.node.attrs
    x, outer, reduce, inner = adjacent(builder, builder.tensor(node.role("input")), [attrs["axis"]])
    y = builder.space(x.shape, node.node.dtype, x.order())
    flags = [int(attrs["exclusive"]), int(attrs["reverse"])]
    comment = f"{node.node.composite} axis {attrs['axis']}: {list(x.shape)}"
    builder.call("ext_cumsum", [*flags, outer, reduce, inner, x, y], y, comment)
    builder.place(node.output, y)


# ---------------------------------------------------------------- the records

_ROWS = {"input": ((4, 32), REAL)}


def _argreduce_samples() -> Iterator[Sample]:
    for kind in ARG_KINDS:
        attrs = {"kind": kind, "axis": 1, "keepdims": False}
        yield Sample(kind, sample_node("argreduce", _ROWS, (4,), "int64", **attrs))


ARGREDUCE = Operator(
    "argreduce",
    roles=("input",),
    attributes={"kind": ", ".join(ARG_KINDS), "axis": "one", "keepdims": "true or false"},
    about="the first position of the extreme value, int64",
    named_by=("kind",),
    facts=along_axis(
        "least",
        numbers=lambda node: {"least": int(node.attrs["kind"] == "argmin")},
        told_by={"kind": ("least",)},
    ),
    kernels=Kernels(lower, check_dtypes, supports),
    samples=_argreduce_samples,
)


def _cumsum_samples() -> Iterator[Sample]:
    attrs = {"axis": 1, "exclusive": False, "reverse": False}
    yield Sample("", sample_node("cumsum", _ROWS, (4, 32), **attrs))


_CUMSUM_FLAGS = ("exclusive", "reverse")

CUMSUM = Operator(
    "cumsum",
    roles=("input",),
    attributes={"axis": "one", **dict.fromkeys(_CUMSUM_FLAGS, "true or false")},
    facts=along_axis(
        *_CUMSUM_FLAGS,
        numbers=lambda node: flags(node, *_CUMSUM_FLAGS),
        told_by={flag: (flag,) for flag in _CUMSUM_FLAGS},
        neutral={flag: unless(flag, 0) for flag in _CUMSUM_FLAGS},
    ),
    kernels=Kernels(lower, check_dtypes, supports),
    samples=_cumsum_samples,
)

OPERATORS = (ARGREDUCE, CUMSUM)
