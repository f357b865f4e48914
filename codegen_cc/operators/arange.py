"""arange: the positions along an axis whose extent only the caller knows."""

from __future__ import annotations

from collections.abc import Iterator

from codegen_cc.dtypes import KERNEL_INDICES, SINGLE
from codegen_cc.node import Node
from codegen_cc.operator import Kernels, Operator
from codegen_cc.operators.dtype_rules import c_dtype, only
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.region.graph import RegionNode


def check_dtypes(node: Node) -> str | None:
    """Numbers of 32 bits, or 64-bit integers."""
    return only(node, (SINGLE, *KERNEL_INDICES))


def supports(node: Node) -> str | None:
    """None if the kernel can compute the node, else the reason."""
    return None if len(node.shape) == 1 else f"result {list(node.shape)}; need one axis"


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_arange``."""
    y = builder.space(node.node.shape, node.node.dtype)
    comment = f"{node.node.composite} {y.dtype}: {list(y.shape)}"
    builder.call("ext_arange", [c_dtype(y.dtype), y.size, y], y, comment)
    builder.place(node.output, y)


def _samples() -> Iterator[Sample]:
    for dtype in (REAL, "int64"):
        yield Sample(dtype, sample_node("arange", {}, (128,), dtype))


ARANGE = Operator(
    "arange",
    roles=(),
    about="0, 1, 2, ... in the dtype of the result",
    kernels=Kernels(lower, check_dtypes, supports),
    samples=_samples,
)

OPERATORS = (ARANGE,)
