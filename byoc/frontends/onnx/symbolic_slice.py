"""Slices of symbolic axes, with bounds that are expressions of symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax

from byoc.ir.dataflow import array_of, shape_of
from codegen_cc.dim import Dim, backward_bounds, is_static, normal, slice_bounds
from codegen_cc.region.relax_dims import relax_dims

Extent = Callable[[Dim], int | tvm.ir.Expr]


def sliced(
    bb: relax.BlockBuilder,
    inputs: Sequence[relax.Expr | None],
    attrs: dict[str, Any],
    extent: Extent,
) -> relax.Expr | None:
    """A slice of symbolic axes with bounds inside of them; what is read backward is turned round.

    TVM clamps bounds to symbolic extents by minima and maxima, of which it can prove nothing.
    ``extent`` writes a dimension as Relax has it. None for what TVM's converter can do.
    """
    image, *lists = (*inputs, None, None, None, None)[:5]
    shape = shape_of(image)
    if shape is None or is_static(shape):
        return None
    begins, ends, axes, steps = (dims_of(values) for values in lists)
    if "starts" in attrs:  # up to opset 9
        begins, ends, axes = (attrs.get(name) for name in ("starts", "ends", "axes"))
    if not begins or not ends:
        return None
    axes = [int(axis) % len(shape) for axis in axes or range(len(begins))]
    steps = [int(step) for step in steps or [1] * len(axes)]
    if 0 in steps:
        return None

    def part(value: relax.Expr, axes: list[int], steps: list[int], *bounds: list[Dim]) -> Any:
        first, last = ([extent(bound) for bound in side] for side in bounds)
        taken = relax.op.strided_slice(value, axes, first, last, steps, assume_inbound=True)
        return bb.normalize(taken)

    ahead = []
    for axis, step, begin, end in zip(axes, steps, begins, ends, strict=True):
        bounds = slice_bounds if step > 0 else backward_bounds
        first, last = bounds(begin, end, shape[axis], step)
        length = normal(last - first)
        if step < 0 and isinstance(length, int):  # what is read alone is turned round
            own = [[normal(shape[axis] - bound)] for bound in (last, first)]
            image = bb.normalize(relax.op.flip(part(image, [axis], [1], *own), axis))
            if step == -1:
                continue
            first, last = 0, length
        elif step < 0:
            image = bb.normalize(relax.op.flip(image, axis))
        ahead.append((axis, abs(step), first, last))
    return part(image, *map(list, zip(*ahead, strict=True))) if ahead else image


def dims_of(expr: relax.Expr | None) -> list[Dim] | None:
    """The elements of a constant or a shape; None for others."""
    if isinstance(expr, relax.ShapeExpr):
        return list(relax_dims(expr.values))
    values = None if expr is None else array_of(expr)
    return None if values is None else [int(value) for value in values.ravel()]
