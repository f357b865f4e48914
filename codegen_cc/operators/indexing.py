"""take: rows of a table (embeddings), or elements along any axis."""

from __future__ import annotations

from collections.abc import Iterator

from codegen_cc import dtypes
from codegen_cc.dim import product
from codegen_cc.dtypes import KERNEL_DTYPES, KERNEL_INDICES
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Number, Operator
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
    fields: dict[str, object] = {
        "outer": product(x.shape[:axis]),
        "extent": x.shape[axis],
        "inner": product(x.shape[axis + 1 :]),
        "count": indices.size,
        "element_size": dtypes.of(x.dtype).bytes,
        "index_dtype": c_dtype(indices.dtype),
    }
    comment = f"{node.node.composite} axis {axis}: {list(x.shape)} at {list(indices.shape)}"
    builder.call("ext_take", [Struct("ext_take_params", fields), x, indices, y], y, comment)
    builder.place(node.output, y)


def _numbers(node: Node) -> dict[str, Number]:
    shape, axis = node.operand("input").shape, node.attrs["axis"]
    return {
        "outer": product(shape[:axis]),
        "extent": shape[axis],
        "inner": product(shape[axis + 1 :]),
        "count": product(node.operand("indices").shape),
    }


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

OPERATORS = (TAKE,)
