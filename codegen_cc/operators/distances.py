"""distances on ``ext_distances``: how far each row of one matrix is from each of another.

    y[r, c] = sum over k of (rows[r, k] - columns[k, c])^2, or of the absolute difference

Both operands have three axes, in any order of these: one that is summed, one of the rows, along
which ``columns`` has one element, and one of the columns, along which ``rows`` has one. The first
axis of one element may be left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from codegen_cc.dim import Dim, product, same
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Operator
from codegen_cc.operators.dtype_rules import only_single
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import Tensor
from codegen_cc.region.graph import RegionNode

KINDS = ("squares", "absolute")


def _axes(node: Node) -> tuple[int, int, int]:
    """The axes of the rows, of the columns, and of what is summed."""
    axis = node.attrs["axis"]
    rows, columns = (other for other in range(3) if other != axis)
    return rows, columns, axis


def supports(node: Node) -> str | None:
    """None if the kernel can compute the node, else the reason."""
    if node.attrs["kind"] not in KINDS:
        return f"distances kind {node.attrs['kind']}; need one of {', '.join(KINDS)}"
    shapes = [node.operand(role).shape for role in ("rows", "columns")]
    if any(len(shape) not in (2, 3) for shape in shapes):
        return f"ranks {len(shapes[0])} and {len(shapes[1])}; need 2 or 3"
    of_rows, of_columns = ((1,) * (3 - len(shape)) + tuple(shape) for shape in shapes)
    rows, columns, axis = _axes(node)
    if not (same(of_rows[columns], 1) and same(of_columns[rows], 1)):
        return f"{list(of_rows)} and {list(of_columns)}; need an axis of one element in each"
    if not same(of_rows[axis], of_columns[axis]):
        return f"{list(of_rows)} and {list(of_columns)}; need equal extents along axis {axis}"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_distances``."""
    rows, columns, axis = _axes(node.node)
    a = _matrix(builder, builder.tensor(node.role("rows")), (rows, axis))
    b = _matrix(builder, builder.tensor(node.role("columns")), (axis, columns))
    y = builder.space(node.node.shape, node.node.dtype, (0, 1))
    fields: dict[str, object] = {"rows": a.shape[0], "depth": a.shape[1], "columns": b.shape[1]}
    fields["absolute"] = int(node.node.attrs["kind"] == "absolute")
    comment = f"{node.node.composite}: {list(a.shape)} from {list(b.shape)}"
    builder.call("ext_distances", [Struct("ext_distances_params", fields), a, b, y], y, comment)
    builder.place(node.output, y)


def _matrix(builder: PlanBuilder, tensor: Tensor, axes: tuple[int, int]) -> Tensor:
    """Two axes of a tensor, the third of which has one element, dense in this order."""
    missing = 3 - len(tensor.shape)
    extents, steps = (1,) * missing + tensor.shape, (0,) * missing + tensor.strides
    shape, strides = (tuple(of[axis] for axis in axes) for of in (extents, steps))
    return builder.dense(replace(tensor, shape=shape, strides=strides))


# ---------------------------------------------------------------- the record


def _macs(node: Node) -> Dim:
    return product([*node.shape, node.operand("rows").shape[node.attrs["axis"] - 3]])


def _samples() -> Iterator[Sample]:
    operands = {"rows": ((8, 16, 1), REAL), "columns": ((1, 16, 32), REAL)}
    for kind in KINDS:
        yield Sample(kind, sample_node("distances", operands, (8, 32), kind=kind, axis=1))


DISTANCES = Operator(
    "distances",
    roles=("rows", "columns"),
    attributes={"kind": ", ".join(KINDS), "axis": "the one that is summed"},
    about="for all pairs of rows and columns: the sum of squared, or absolute, differences",
    macs=_macs,
    facts=Facts(told_by={"kind": (), "axis": ()}),
    kernels=Kernels(lower, only_single, supports),
    samples=_samples,
)

OPERATORS = (DISTANCES,)
