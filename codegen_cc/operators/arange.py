"""arange and sizes: positions along axes, and extents, that only the caller knows."""

from __future__ import annotations

from collections.abc import Iterator

from codegen_cc.dim import parse_dim
from codegen_cc.dtypes import KERNEL_INDICES, SINGLE
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Operator
from codegen_cc.operators.dtype_rules import c_dtype, only
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
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


#: As many sizes as ``ext_sizes`` takes.
_MOST_SIZES = 8


def _sizes_dtype(node: Node) -> str | None:
    return only(node, ("int64",))


def _sizes_supported(node: Node) -> str | None:
    count = len(node.attrs["sizes"])
    if count > _MOST_SIZES:
        return f"{count} sizes; need at most {_MOST_SIZES}"
    return None


def _sizes(node: RegionNode, builder: PlanBuilder) -> None:
    sizes = [parse_dim(size) for size in node.node.attrs["sizes"]]
    y = builder.space(node.node.shape, node.node.dtype)
    fields: dict[str, object] = {"count": len(sizes), "sizes": sizes}
    comment = f"{node.node.composite}: {sizes}"
    builder.call("ext_sizes", [Struct("ext_sizes_params", fields), y], y, comment)
    builder.place(node.output, y)


def _sizes_samples() -> Iterator[Sample]:
    yield Sample("int64", sample_node("sizes", {}, (2,), "int64", sizes=[3, 4]))


SIZES = Operator(
    "sizes",
    roles=(),
    attributes={"sizes": "the numbers"},
    about="extents of shapes, as numbers",
    moves=True,
    facts=Facts(told_by={"sizes": ()}),
    kernels=Kernels(_sizes, _sizes_dtype, _sizes_supported),
    samples=_sizes_samples,
)

OPERATORS = (ARANGE, SIZES)
