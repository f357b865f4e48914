"""Tensors whose extents values decide, taken as what they have to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import sympy
import tvm
from tvm import relax

from byoc.ir.dataflow import shape_of
from codegen_cc.dim import Dim, same
from codegen_cc.region.relax_dims import relax_extent


def fitted(
    bb: relax.BlockBuilder, value: relax.Expr, extents: Sequence[int | tvm.ir.Expr]
) -> relax.Expr:
    """A tensor of a known shape with these extents, which the run looks at."""
    require_equal(bb, value.ty.shape.values, extents)
    return bb.normalize(relax.op.reshape(value, relax.ShapeExpr(extents)))


def require_equal(
    bb: relax.BlockBuilder,
    found: Sequence[int | tvm.ir.Expr],
    wanted: Sequence[int | tvm.ir.Expr],
) -> None:
    """Let the run look whether numbers are equal, pair by pair."""
    # More by one: an extent that is a symbol would be replaced by what it is compared with.
    more = [[extent + 1 for extent in dims] for dims in (found, wanted)]
    bb.match_cast(relax.ShapeExpr(more[0]), relax.ShapeType(more[1]))


def require_number(bb: relax.BlockBuilder, found: relax.Expr, wanted: int) -> None:
    """Let the run look whether a computed integer is this number."""
    # As a tensor, so that every order of bindings has the comparison behind what is computed.
    more = relax.op.reshape(relax.op.add(found, relax.const(1, "int64")), [1])
    bb.match_cast(bb.emit(relax.op.tensor_to_shape(bb.emit(more))), relax.ShapeType([wanted + 1]))


def concatenated(
    bb: relax.BlockBuilder,
    inputs: Sequence[relax.Expr | None],
    axis: int,
    variables: Mapping[sympy.Symbol, tvm.ir.Var],
    by_values: Callable[..., bool],
) -> relax.Expr | None:
    """Tensors whose extents beside the axis values decide, which have to be equal.

    ``by_values`` says whether values decide one of some extents. None for others: TVM's converter
    knows that theirs are equal, or callers decide it.
    """
    shapes = [shape_of(x) for x in inputs]
    if None in shapes or len({len(shape) for shape in shapes}) != 1:
        return None
    axis %= len(shapes[0])

    def told(dims: Sequence[Dim]) -> Dim:
        return next((dim for dim in dims if not by_values(dim)), dims[0])

    wanted = [told(dims) for dims in zip(*shapes, strict=True)]
    parts = []
    for x, shape in zip(inputs, shapes, strict=True):
        dims = [own if i == axis else wanted[i] for i, own in enumerate(shape)]
        other = [pair for pair in zip(dims, shape, strict=True) if not same(*pair)]
        if not all(by_values(*pair) for pair in other):
            return None
        extents = [relax_extent(dim, variables) for dim in dims]
        parts.append(fitted(bb, x, extents) if other else x)
    if all(a is b for a, b in zip(parts, inputs, strict=True)):
        return None
    return relax.op.concat(parts, axis)
