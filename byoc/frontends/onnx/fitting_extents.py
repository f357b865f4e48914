"""Tensors whose extents values decide, taken as what they have to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

import sympy
import tvm
from tvm import relax

from byoc.frontends.onnx.learned_axes import Elements, Unequal, unequal
from byoc.ir.dataflow import shape_of
from codegen_cc.dim import Dim, at_most, broadcast_shape, normal, same
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
    """Tensors whose extents beside the axis values decide, which have to be equal, or which are
    the parts of an axis that was cut.

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
    total = normal(sum(shape[axis] for shape in shapes))
    cut = any(sympy.sympify(shape[axis]).has(sympy.Max) for shape in shapes)
    if not cut and all(a is b for a, b in zip(parts, inputs, strict=True)):
        return None
    joined = relax.op.concat(parts, axis)
    if not cut or sympy.sympify(total).has(sympy.Max):
        return joined
    # TVM does not know that max(0, n - 3) and min(n, 3) are n.
    whole = [total if i == axis else dim for i, dim in enumerate(wanted)]
    shape = relax.ShapeExpr([relax_extent(dim, variables) for dim in whole])
    return relax.op.reshape(bb.normalize(joined), shape)


def broadcastable(
    bb: relax.BlockBuilder,
    inputs: Sequence[relax.Expr | None],
    variables: Mapping[sympy.Symbol, tvm.ir.Var],
    by_values: Callable[..., bool],
) -> list[relax.Expr | None]:
    """Operands of an elementwise operator, where extents differ those that ``by_values`` may change
    with the extents of the others.

    Whether one of two such extents is 1, and repeated, only the run would know, so that both are
    taken for equal; but for one that is 1 or 0 at all sizes, as that of ``x[:, -1:]``, which is
    taken for 1.
    """
    shapes = [None if x is None else shape_of(x) for x in inputs]
    if None in shapes or broadcast_shape(*shapes) is not None:
        return list(inputs)
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    wanted = [_told(dims, by_values) for dims in zip(*padded, strict=True)]
    parts = []
    for x, shape in zip(inputs, shapes, strict=True):
        along = zip(shape, wanted[rank - len(shape) :], strict=True)
        dims = [_beside(own, want, by_values) for own, want in along]
        extents = [relax_extent(dim, variables) for dim in dims]
        parts.append(x if all(map(same, dims, shape)) else fitted(bb, x, extents))
    return parts


def told_apart(inputs: Sequence[relax.Expr | None]) -> bool:
    """Whether TVM takes equal extents of operands for different ones, as it does where one is
    ``(n + 7) // 8`` and the other ``-(-n // 8)``. It would not know the result's shape.
    """
    analyzer = tvm.sym.Analyzer()
    for axis in zip_longest(*(reversed(x.ty.shape.values) for x in inputs)):
        computed = [e for e in axis if e is not None and not isinstance(e, (int, tvm.tirx.IntImm))]
        if any(not analyzer.can_prove_equal(computed[0], e) for e in computed[1:]):
            return True
    return False


def expanded(
    bb: relax.BlockBuilder,
    value: relax.Expr,
    wanted: Sequence[Dim],
    extent_of: Callable[[Dim], int | tvm.ir.Expr],
    differing: Unequal,
    late: bool,
) -> relax.Expr:
    """Broadcasting of, or to, symbolic extents.

    Where the run decides whether an axis is repeated, the pair is added to ``differing``, and
    ``ValueError`` raised; or, if it is ``late`` to know, axes of 1 are repeated and others have to
    be equal.
    """
    shape = shape_of(value)
    wanted = _ones_in(bb, wanted, shape, extent_of, differing)
    # TVM's converter takes -1 for an axis that stays; so did exporters.
    padded = (1,) * (len(wanted) - len(shape)) + shape
    rank = len(padded)
    wanted = [1 if e == -1 else e for e in (*[1] * (rank - len(wanted)), *wanted)]
    result = broadcast_shape(padded, tuple(wanted))
    if result is None and not late:
        differing += unequal([padded, tuple(wanted)])
        raise ValueError(
            f"shape {list(shape)} to {wanted}: whether an axis is repeated depends on the"
            " sizes; need equal extents, or 1"
        )
    if result is None:
        for axis, (own, whole) in enumerate(zip(shape, wanted[rank - len(shape) :], strict=True)):
            if broadcast_shape((own,), (whole,)) is None:
                value = _repeated(bb, value, axis, extent_of(whole))
        result = broadcast_shape((1,) * (rank - len(shape)) + shape_of(value), tuple(wanted))
    return relax.op.broadcast_to(value, relax.ShapeExpr([extent_of(e) for e in result]))


def _ones_in(
    bb: relax.BlockBuilder,
    wanted: Sequence[Dim],
    shape: Sequence[Dim],
    extent_of: Callable[[Dim], int | tvm.ir.Expr],
    differing: Unequal,
) -> list[Dim]:
    """The shape that an Expand asks for, with 1 for what is 1 or 0 beside an open extent.

    So PyTorch writes ``index_add``: rows are expanded to the first row of what they are added to,
    which is none where the call has no rows. That it be 1 is added to ``differing``, and the run
    looks.
    """
    result = list(wanted)
    for back in range(1, min(len(wanted), len(shape)) + 1):
        own, whole = shape[-back], wanted[-back]
        if isinstance(own, int) or isinstance(whole, int) or own == whole:
            continue
        if at_most(whole, 1):
            differing += [Elements(whole, 1)]
            require_equal(bb, [extent_of(whole)], [1])
            result[-back] = 1
    return result


def _repeated(
    bb: relax.BlockBuilder, value: relax.Expr, axis: int, extent: int | tvm.ir.Expr
) -> relax.Expr:
    """A tensor whose axis is ``extent`` long or, where it is 1, is repeated so often."""
    own = value.ty.shape.values[axis]
    require_equal(bb, [(own - 1) * own], [(own - 1) * extent])
    last = bb.normalize(relax.op.shape_to_tensor(relax.ShapeExpr([own - 1])))
    places = bb.normalize(relax.op.arange(0, extent, 1, "int64"))
    places = bb.normalize(relax.op.minimum(places, last))
    return bb.normalize(relax.op.take(value, places, axis=axis))


def multipliable(
    bb: relax.BlockBuilder,
    inputs: Sequence[relax.Expr],
    variables: Mapping[sympy.Symbol, tvm.ir.Var],
) -> list[relax.Expr]:
    """Operands of MatMul, the second one with as many rows as the first one has columns."""
    a, b = map(shape_of, inputs)
    place = max(0, len(b) - 2)
    dims = [a[-1] if axis == place else own for axis, own in enumerate(b)]
    extents = [relax_extent(dim, variables) for dim in dims]
    return [inputs[0], fitted(bb, inputs[1], extents)]


def _told(dims: Sequence[Dim], by_values: Callable[..., bool]) -> Dim:
    """Of the extents of an axis, but for 1, one that nothing may change, else the plainest."""
    wide = [dim for dim in dims if dim != 1] or [1]
    if any(map(by_values, wide)):
        wide = [dim for dim in wide if not _is_one_or_none(dim)] or wide
    kept = [dim for dim in wide if not by_values(dim)]
    return min(kept or wide, key=lambda dim: -1 if isinstance(dim, int) else sympy.count_ops(dim))


def _beside(own: Dim, wanted: Dim, by_values: Callable[..., bool]) -> Dim:
    """An extent as it has to be beside another one, which values may decide."""
    if own == 1 or not (by_values(own) or by_values(wanted)):
        return own
    if _is_one_or_none(own) and not same(own, wanted):
        return 1
    return wanted if by_values(own) else own


def _is_one_or_none(dim: Dim) -> bool:
    return not isinstance(dim, int) and at_most(dim, 1)
