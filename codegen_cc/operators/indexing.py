"""take: rows of a table, or elements along any axis; lookup: bytes in a table of 256."""

from __future__ import annotations

from collections.abc import Iterator

from codegen_cc import dtypes
from codegen_cc.dim import Dim, product
from codegen_cc.dtypes import KERNEL_BYTES, KERNEL_DTYPES, KERNEL_INDICES
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Layout, Number, Operator
from codegen_cc.operators.dtype_rules import c_dtype, one_of
from codegen_cc.operators.operands import all_constant
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.region.graph import RegionNode


def check_dtypes(node: Node) -> str | None:
    """Values of any dtype, which the result has too; integers as indices."""
    values, indices = node.operand("input").dtype, node.operand("indices").dtype
    reason = one_of("input", values, KERNEL_DTYPES) or one_of("result", node.dtype, (values,))
    return reason or one_of("indices", indices, KERNEL_INDICES)


def supports(node: Node) -> str | None:
    """None if the kernel can compute the node, else the reason."""
    return all_constant(node)


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_take``, which checks every index at run time."""
    axis = node.node.attrs["axis"]
    x = builder.dense(builder.tensor(node.role("input")))
    indices = builder.dense(builder.tensor(node.role("indices")))
    y = builder.space(node.node.shape, x.dtype)
    fields: dict[str, object] = {**_sizes(x.shape, axis, indices.size)}
    fields["element_size"] = dtypes.of(x.dtype).bytes
    fields["index_dtype"] = c_dtype(indices.dtype)
    comment = f"{node.node.composite} axis {axis}: {list(x.shape)} at {list(indices.shape)}"
    builder.call("ext_take", [Struct("ext_take_params", fields), x, indices, y], y, comment)
    builder.place(node.output, y)


def _numbers(node: Node) -> dict[str, Number]:
    count = product(node.operand("indices").shape)
    return _sizes(node.operand("input").shape, node.attrs["axis"], count)


def _sizes(shape: tuple[Dim, ...], axis: int, count: Dim) -> dict[str, Number]:
    outer, inner = product(shape[:axis]), product(shape[axis + 1 :])
    return {"outer": outer, "extent": shape[axis], "inner": inner, "count": count}


def _samples() -> Iterator[Sample]:
    for dtype in ("int32", "int64"):
        operands = {"input": ((4, 32), REAL), "indices": ((3,), dtype)}
        yield Sample(f"{dtype} indices", sample_node("take", operands, (3, 32), axis=0))


TAKE = Operator(
    "take",
    roles=("input", "indices"),
    attributes={"axis": "one"},
    facts=Facts(
        names=("outer", "extent", "inner", "count"),
        numbers=_numbers,
        told_by={"axis": ("outer inner",)},
    ),
    kernels=Kernels(lower, check_dtypes, supports),
    samples=_samples,
)


# ---------------------------------------------------------------- functions of bytes


def _lookup_dtypes(node: Node) -> str | None:
    """Bytes, a table of bytes, whose dtype the result has."""
    table = node.operand("table").dtype
    reason = one_of("input", node.operand("input").dtype, KERNEL_BYTES)
    return reason or one_of("table", table, KERNEL_BYTES) or one_of("result", node.dtype, (table,))


def _lookup_unfit(node: Node) -> str | None:
    table = node.operand("table")
    if table.shape != (_ENTRIES,) or not table.constant:
        return f"table has shape {list(table.shape)}; need a constant of {_ENTRIES} elements"
    return None


def _lower_lookup(node: RegionNode, builder: PlanBuilder) -> None:
    x = builder.compact(builder.tensor(node.role("input")))
    y = builder.space(x.shape, node.node.dtype, x.walk())
    table = builder.constant(node.role("table").data)
    comment = f"{node.node.composite}: {list(x.shape)}"
    builder.call("ext_lookup", [x.size, x, table, y], y, comment)
    builder.place(node.output, y)


def _lookup_samples() -> Iterator[Sample]:
    for dtype in KERNEL_BYTES:
        operands = {"input": ((4, 32), dtype), "table": ((_ENTRIES,), f"constant {dtype}")}
        yield Sample(dtype, sample_node("lookup", operands, (4, 32), dtype))


_ENTRIES = 256

LOOKUP = Operator(
    "lookup",
    roles=("input", "table"),
    about="table[input]; negative numbers count from the end of the table",
    layout=Layout.KEEP,
    kernels=Kernels(_lower_lookup, _lookup_dtypes, _lookup_unfit),
    samples=_lookup_samples,
)

OPERATORS = (TAKE, LOOKUP)
