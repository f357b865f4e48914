"""Operators whose result has a size that is computed while the model runs.

A size becomes a symbol of Relax, which the result's shape has and loop nests are written with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from tvm import relax, te, tirx
from tvm.relax.frontend.onnx.onnx_frontend import _tensor_to_shape_expr

from byoc.frontends.onnx.converters.node import Node
from byoc.frontends.onnx.fitting_extents import require_number
from byoc.ir.dataflow import bound, op_name
from codegen_cc.dim import is_static

_INT64 = "int64"


def extents_of(node: Node, numbers: relax.Expr, count: int, name: str) -> list[tirx.Expr]:
    """Numbers of an integer tensor [count] as extents."""
    whole = node.emit(relax.op.astype(numbers, _INT64))
    return list(_tensor_to_shape_expr(node.bb, whole, count, name).values)


def known_extent(node: Node, place: int) -> tirx.Expr | None:
    """The one number of an input where symbols tell it; None where only the run does."""
    given = bound(node.bb, node.inputs[place])
    while op_name(given) == "relax.reshape":  # a vector of one number, or the number
        given = bound(node.bb, given.args[0])
    known = op_name(given) == "relax.shape_to_tensor"
    return given.args[0].values[0] if known and isinstance(given.args[0], relax.ShapeExpr) else None


def single_extent(node: Node, place: int, name: str) -> tirx.Expr:
    """The one number of an input as an extent; a new symbol unless it is known by symbols."""
    known = known_extent(node, place)
    if known is not None:
        return known
    number = node.emit(relax.op.reshape(node.inputs[place], [1]))
    return extents_of(node, number, 1, name)[0]


def known_shape(node: Node, what: str) -> tuple[int, ...]:
    """The shape of the first input. Raises ``ValueError`` where it is not known."""
    shape = node.shape()
    if shape is None or not is_static(shape):
        raise ValueError(f"{what} that are computed, of a tensor of unknown shape; need constants")
    return shape


def _length(node: Node, place: int, what: str) -> int:
    """How many numbers an input has."""
    shape = node.shape(place)
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int):
        raise ValueError(f"an unknown number of {what}; need a known one")
    return shape[0]


def is_computed(node: Node, place: int) -> bool:
    """Whether an input is a tensor that is no constant."""
    if len(node.inputs) <= place or node.inputs[place] is None:
        return False
    return not isinstance(node.inputs[place], relax.ShapeExpr) and node.constant(place) is None


def reshape(node: Node) -> relax.Expr:
    """To a shape that is computed; -1 and 0 mean what they mean there."""
    if not is_computed(node, 1):
        return node.tvm()
    shape, count = known_shape(node, "extents"), _length(node, 1, "extents")
    wanted = node.emit(relax.op.astype(node.inputs[1], _INT64))
    zero, one, rest = (relax.const(number, _INT64) for number in (0, 1, -1))
    if count == 0:
        return relax.op.reshape(node.inputs[0], relax.ShapeExpr([]))
    if not node.attrs.get("allowzero", 0):
        own = [*shape[:count], *[1] * (count - len(shape))]
        own = relax.const(np.array(own, _INT64), _INT64)
        wanted = node.emit(relax.op.where(relax.op.equal(wanted, zero), own, wanted))
    is_rest = node.emit(relax.op.equal(wanted, rest))
    given = node.emit(relax.op.prod(relax.op.where(is_rest, one, wanted)))
    total = relax.const(int(np.prod(shape, dtype=_INT64)), _INT64)
    left = relax.op.floor_divide(total, relax.op.maximum(given, one))
    found = node.emit(relax.op.where(is_rest, left, wanted))
    require_number(node.bb, relax.op.prod(found), prod(shape))
    extents = extents_of(node, found, count, "extent")
    return relax.op.reshape(node.inputs[0], relax.ShapeExpr(extents))


def split(node: Node) -> relax.Expr:
    """Parts of computed sizes."""
    shape = known_shape(node, "sizes")
    axis, count = node.attrs.get("axis", 0) % len(shape), _length(node, 1, "sizes")
    sizes = extents_of(node, node.inputs[1], count, "size")
    begin: tirx.Expr = tirx.IntImm(_INT64, 0)
    parts = []
    for size in sizes:
        part = relax.op.strided_slice(
            node.inputs[0], [axis], [begin], [begin + size], assume_inbound=True
        )
        parts.append(_sized(node, part, shape, axis, size))
        begin = begin + size
    return relax.Tuple(parts)


def _sized(
    node: Node, value: relax.Expr, shape: Sequence[int], axis: int, size: tirx.Expr
) -> relax.Expr:
    """A value whose extent along an axis is said to be ``size``."""
    extents = [size if place == axis else extent for place, extent in enumerate(shape)]
    kind = relax.TensorType(extents, node.dtype())
    return node.bb.match_cast(node.emit(value), kind)


def top_k(node: Node) -> relax.Expr:
    """A computed number of elements: the first ones of all, in order."""
    if node.shape() is None:
        raise ValueError("a computed number of elements, of a tensor of unknown shape")
    axis = node.attrs.get("axis", -1) % len(node.shape())
    k = single_extent(node, 1, "k")
    node.inputs[1] = relax.const(0, _INT64)  # TVM's word for all
    node.attrs["k"] = 0  # where it reads opset 10
    whole = node.emit(node.tvm())
    parts = [relax.TupleGetItem(whole, 0), relax.TupleGetItem(whole, 1)]
    cut = [
        relax.op.strided_slice(node.emit(p), [axis], [0], [k], assume_inbound=True) for p in parts
    ]
    return relax.Tuple([node.emit(part) for part in cut])


#: The element of the input that an element of the padding repeats, by mode: of a place outside and
#: an extent.
_OUTSIDE: dict[str, Callable[[tirx.Expr, tirx.Expr], tirx.Expr]] = {
    "edge": lambda at, extent: tirx.max(tirx.min(at, extent - 1), 0),
    "wrap": lambda at, extent: tirx.floormod(at, extent),
    "reflect": lambda at, extent: _reflected(at, extent),
}


def _reflected(at: tirx.Expr, extent: tirx.Expr) -> tirx.Expr:
    period = tirx.max(2 * (extent - 1), 1)
    turned = tirx.floormod(at, period)
    return tirx.Select(turned < extent, turned, period - turned)


def pad(node: Node) -> relax.Expr:
    """Widths that are computed, along axes that may be, in every mode; negative ones cut off."""
    if not (is_computed(node, 1) or is_computed(node, 2) or is_computed(node, 3)):
        return node.tvm()
    shape, mode = known_shape(node, "widths"), node.attrs.get("mode", b"constant").decode()
    rank = len(shape)
    widths = node.emit(relax.op.astype(node.inputs[1], _INT64))
    count = _length(node, 1, "widths") // 2
    sides = [relax.op.strided_slice(widths, [0], [i * count], [(i + 1) * count]) for i in (0, 1)]
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        axes = relax.op.astype(node.inputs[3], _INT64)
        below = relax.op.less(axes, relax.const(0, _INT64))
        axes = relax.op.where(below, relax.op.add(axes, relax.const(rank, _INT64)), axes)
        hot = relax.op.equal(relax.op.expand_dims(axes, 1), relax.const(np.arange(rank), _INT64))
        hot = node.emit(relax.op.astype(hot, _INT64))
        sides = [relax.op.sum(relax.op.multiply(hot, relax.op.expand_dims(s, 1)), 0) for s in sides]
    first, last = map(node.emit, sides)
    dims = relax.const(np.array(shape, _INT64), _INT64)
    extents = extents_of(node, relax.op.add(relax.op.add(dims, first), last), rank, "padded")
    fill = node.inputs[2] if len(node.inputs) > 2 else None
    if fill is None:
        fill = relax.const(0, node.dtype())
    fill = node.emit(relax.op.reshape(fill, [1]))
    if mode != "constant" and mode not in _OUTSIDE:
        raise ValueError(f"mode {mode}; need one of constant, {', '.join(_OUTSIDE)}")

    def loops(x: te.Tensor, begin: te.Tensor, end: te.Tensor, value: te.Tensor) -> te.Tensor:
        def at(*place: tirx.Var) -> tirx.Expr:
            there, inside = [], tirx.const(True, "bool")
            for axis, (i, extent) in enumerate(zip(place, x.shape, strict=True)):
                # What negative widths cut off is not repeated either.
                cut = tirx.max(0 - begin(axis), 0)
                left = extent - cut - tirx.max(0 - end(axis), 0)
                i = i - tirx.max(begin(axis), 0)
                inside = tirx.all(inside, i >= 0, i < left)
                there.append(cut + (i if mode == "constant" else _OUTSIDE[mode](i, left)))
            if mode != "constant":
                return x(*there)
            return tirx.if_then_else(inside, x(*there), value(0))

        return te.compute(extents, at, name="pad")

    return node.bb.emit_te(loops, node.inputs[0], first, last, fill)


def affine_grid(node: Node) -> relax.Expr:
    """Points theta (x, y[, z], 1) of a grid over [-1, 1], of a size that is computed."""
    theta, count = node.shape(), node.shape(1)
    if not is_computed(node, 1) or theta is None or count is None:
        return node.tvm()
    rank = theta[1]
    sizes = extents_of(node, node.inputs[1], rank + 2, "size")[2:]
    corners = bool(node.attrs.get("align_corners", 0))

    def loops(theta: te.Tensor) -> te.Tensor:
        def at(n: tirx.Var, *place: tirx.Var) -> tirx.Expr:
            *grid, k = place
            value = theta(n, k, rank)
            for axis, (i, size) in enumerate(zip(grid, sizes, strict=True)):
                i, size = tirx.Cast(theta.dtype, i), tirx.Cast(theta.dtype, size)
                one, two = tirx.const(1, theta.dtype), tirx.const(2, theta.dtype)
                point = two * i / (size - one) if corners else (two * i + one) / size
                value = value + theta(n, k, rank - 1 - axis) * (point - one)
            return value

        return te.compute([theta.shape[0], *sizes, rank], at, name="grid")

    return node.bb.emit_te(loops, node.inputs[0])
