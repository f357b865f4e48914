"""rotary on ``ext_rotary``: pairs of numbers along the last axis, turned by an angle each.

    y[.., j]     = x[.., j] cosine[.., j] - x[.., h + j] sine[.., j]
    y[.., h + j] = x[.., h + j] cosine[.., t + j] + x[.., j] sine[.., t + j],  j < h

for x [.., 2 h], and tables that are repeated to its leading axes: [.., h] with t = 0, or [.., 2 h]
with t = h (rotary position embedding, Su et al., 2021, with halves as in GPT-NeoX and Llama).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from codegen_cc.dim import Dim, product, same
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Layout, Operator
from codegen_cc.operators.bfloat16 import BFLOAT16, narrow, storage_struct
from codegen_cc.operators.dtype_rules import only_single
from codegen_cc.operators.elementwise import loop_fields
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Argument, Struct
from codegen_cc.plan.tensors import MAX_AXES, Tensor
from codegen_cc.region.graph import RegionNode

_TABLES = ("cosine", "sine")


def supports(node: Node) -> str | None:
    """None if the kernel can compute the node, else the reason."""
    shape = node.shape
    if not 2 <= len(shape) <= MAX_AXES + 1:
        return f"rank {len(shape)}; need 2 to {MAX_AXES + 1}"
    width = shape[-1]
    if not isinstance(width, int) or width % 2:
        return f"{width} numbers along the last axis; need an even number"
    widths = {node.operand(role).shape[-1] for role in _TABLES}
    if widths not in ({width}, {width // 2}):
        return f"tables of {sorted(map(str, widths))} columns; need both of {width} or {width // 2}"
    for role in _TABLES:
        table = node.operand(role).shape[:-1]
        inner = shape[:-1][len(shape) - 1 - len(table) :]
        fits = all(same(t, 1) or same(t, s) for t, s in zip(table, inner, strict=False))
        if len(table) > len(shape) - 1 or not fits:
            return f"{role} {list(node.operand(role).shape)} is not repeated to {list(shape)}"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_rotary``, or of its form for what is stored in bfloat16."""
    x = _rows(builder, builder.tensor(node.role("input")))
    cosine, sine = (_rows(builder, builder.tensor(node.role(role))) for role in _TABLES)
    last = len(x.shape) - 1
    order = tuple(axis for axis in x.walk() if axis != last)
    y = builder.space(x.shape, builder.stored_dtype(node.output), (*order, last))
    half = x.shape[-1] // 2
    leading = {"x": _leading(x), "cosine": _leading(cosine), "sine": _leading(sine)}
    fields = loop_fields(leading, x.shape[:-1], order)
    fields |= {"half": half, "turned": half if cosine.shape[-1] > half else 0}
    arguments: list[Argument] = [Struct("ext_rotary_params", fields), x, cosine, sine, y]
    function = "ext_rotary"
    if BFLOAT16 in (x.dtype, y.dtype):
        arguments.insert(1, storage_struct(x, None, y))
        function += "_bf16"
    comment = f"{node.node.composite}: {list(x.shape)} by {list(cosine.shape)}"
    builder.call(function, arguments, y, comment, over=[x])
    builder.place(node.output, y)


def _rows(builder: PlanBuilder, tensor: Tensor) -> Tensor:
    """The tensor with its last axis side by side, which may need a copy."""
    return tensor if same(tensor.strides[-1], 1) else builder.dense(tensor)


def _leading(tensor: Tensor) -> Tensor:
    """The first elements of all rows."""
    return replace(tensor, shape=tensor.shape[:-1], strides=tensor.strides[:-1])


# ---------------------------------------------------------------- the record


def _unfit(node: Node, told: Collection[str], function: str) -> str | None:
    del told
    rows: Dim = product(node.shape[:-1])
    for role in _TABLES:
        table = node.operand(role).shape
        if not same(product(table[:-1]), rows):
            return f"{role} {list(table)} is repeated to {list(node.shape)}; {function} is not told"
    return None


def _samples() -> Iterator[Sample]:
    for variant, width in (("", 64), ("tables of half the width", 32)):
        tables = {role: ((1, 1, 8, width), REAL) for role in _TABLES}
        operands = {"input": ((1, 4, 8, 64), REAL), **tables}
        yield Sample(variant, sample_node("rotary", operands, (1, 4, 8, 64)))


ROTARY = Operator(
    "rotary",
    roles=("input", *_TABLES),
    about="input * cosine + turned * sine, turned: -second half, first half of the last axis",
    layout=Layout.KEEP_GAPS,
    facts=Facts(unfit=_unfit),
    kernels=Kernels(lower, only_single, supports, narrow=lambda node: narrow("input")),
    samples=_samples,
)

OPERATORS = (ROTARY,)
