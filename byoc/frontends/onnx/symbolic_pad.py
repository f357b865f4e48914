"""Pad with widths that are expressions of symbols, which ``nn.pad`` cannot be told."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tvm
from tvm import relax

from byoc.frontends.padded_from_inside import padded_from_inside
from byoc.ir.dataflow import array_of, dtype_of, shape_of
from codegen_cc.dim import Dim, above_zero, is_static, normal

Extent = Callable[[Dim], int | tvm.ir.Expr]


def filling(value: relax.Expr) -> float | None:
    """The number of a constant of one element, of integers to the last digit; None for others."""
    values = array_of(value)
    return values.item() if values is not None and values.size == 1 else None


def joined(
    bb: relax.BlockBuilder,
    source: relax.Expr,
    sides: Mapping[int, tuple[Dim, Dim]],
    fill: float,
    extent: Extent,
) -> relax.Expr:
    """A tensor between constants of these widths before and after it along each axis.

    A width below 0 takes so much away. ``extent`` writes a dimension as Relax has it.
    """
    for axis, pair in sides.items():
        wide = [above_zero(width) for width in pair]
        first, last = (_filled(source, axis, width, fill, extent) for width in wide)
        parts = [part for part in (first, source, last) if part is not None]
        if len(parts) > 1:
            source = bb.normalize(relax.op.concat(parts, axis))
        begin, cut = (normal(most - width) for most, width in zip(wide, pair, strict=True))
        if (begin, cut) != (0, 0):
            end = normal(shape_of(source)[axis] - cut)
            bounds = [[extent(begin)], [extent(end)]]
            source = relax.op.strided_slice(source, [axis], *bounds, assume_inbound=True)
            source = bb.normalize(source)
    return source


def cut(
    bb: relax.BlockBuilder,
    source: relax.Expr,
    sides: Mapping[int, tuple[int, int]],
    extent: Extent,
) -> relax.Expr:
    """A tensor without what widths below 0 take away along each axis."""
    less = {axis: pair for axis, pair in sides.items() if min(pair) < 0}
    if not less:
        return source
    shape = shape_of(source)
    first = [max(0, -pair[0]) for pair in less.values()]
    last = [extent(normal(shape[axis] + min(0, pair[1]))) for axis, pair in less.items()]
    part = relax.op.strided_slice(source, list(less), first, last, assume_inbound=True)
    return bb.normalize(part)


def wrapped(
    bb: relax.BlockBuilder, source: relax.Expr, sides: Mapping[int, tuple[Dim, Dim]]
) -> relax.Expr | None:
    """A tensor of which what leaves at one end of an axis comes in at the other.

    None where an axis with a width is open, or has nothing, or a width is below 0.
    """
    shape = shape_of(source)
    for axis, pair in sides.items():
        size = shape[axis]
        if pair == (0, 0):
            continue
        if not is_static([size, *pair]) or min(pair) < 0 or size == 0:
            return None
        if max(pair) > size:  # it comes in more than once
            places = np.arange(-pair[0], size + pair[1]) % size
            source = bb.normalize(relax.op.take(source, relax.const(places, "int64"), axis))
            continue
        begins = [(size - pair[0], size)] * bool(pair[0]), [(0, pair[1])] * bool(pair[1])
        first, last = (
            [relax.op.strided_slice(source, [axis], [begin], [end]) for begin, end in bounds]
            for bounds in begins
        )
        source = bb.normalize(relax.op.concat([*first, source, *last], axis))
    return source


def repeated(
    bb: relax.BlockBuilder,
    source: relax.Expr,
    sides: Mapping[int, tuple[Dim, Dim]],
    mode: str,
    extent: Extent,
) -> relax.Expr:
    """A tensor that goes on with its own elements for these widths, in a mode of ``nn.pad``."""
    for axis, (begin, end) in sides.items():
        if (begin, end) != (0, 0):
            own = shape_of(source)[axis]
            first, length = (
                bb.normalize(relax.op.shape_to_tensor(relax.ShapeExpr([extent(size)])))
                for size in (begin, own)
            )
            size = extent(normal(begin + own + end))
            source = padded_from_inside(bb.normalize, source, axis, size, first, length, mode)
    return source


def _filled(
    like: relax.Expr, axis: int, width: Dim, fill: float, extent: Extent
) -> relax.Expr | None:
    """A constant with the shape of a tensor but for its width along an axis; None for 0."""
    if width == 0:
        return None
    shape = list(shape_of(like))
    shape[axis] = width
    return relax.op.full(
        relax.ShapeExpr([extent(e) for e in shape]), relax.const(fill, dtype_of(like))
    )
