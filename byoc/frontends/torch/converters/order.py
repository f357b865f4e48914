"""Sorting, and what depends on the order of elements along an axis."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tvm import relax, te, tirx, topi

from byoc.frontends.torch.converters.comparison import DOUBLE, greatest, keys, least
from byoc.frontends.torch.converters.movement import part_of
from byoc.frontends.torch.values import Graph, Value
from byoc.ir.dataflow import dtype_of

op = relax.op

#: How many elements ``topk`` gives where it gives all, however many these are.
ALL = 0
_NARROW = ("bool", "uint8", "int8", "int16")
_MOST = torch.iinfo(torch.int64).max


def _of_one(g: Graph, tensor: relax.Expr) -> list[relax.Expr]:
    """What a tensor without axes is in any order: its element, at place 0."""
    return [tensor, g.tensor(torch.zeros((), dtype=torch.int64))]


def _numbers(count: int, rank: int, axis: int) -> torch.Tensor:
    """0, 1, ... along an axis of a tensor of so many."""
    return torch.arange(count).reshape([-1] + [1] * (rank - 1 - axis))


def topk(g: Graph, x: Value, k: Value, dim: int, largest: bool, sorted: bool) -> list[relax.Expr]:
    """The ``k`` greatest or least elements along an axis, and their places; equal ones as they
    stand. Neither the kernel nor TVM knows narrow integers. Of a number that sizes decide, all are
    put in order."""
    tensor = g.tensor(x)
    if not tensor.ty.ndim:
        return _of_one(g, tensor)
    own = dtype_of(tensor)
    ordered, axis = g.tensor(tensor, "int32") if own in _NARROW else tensor, dim % tensor.ty.ndim
    if own == DOUBLE:
        ordered = keys(g, tensor, _MOST)
    count = k if isinstance(k, int) else ALL
    both = g.emit(op.topk(ordered, count, axis, "both", largest, "int64"))
    values, places = (g.emit(relax.TupleGetItem(both, i)) for i in range(2))
    if count is not k:
        values, places = (g.emit(part_of(part, axis, 0, k)) for part in (values, places))
    if own == DOUBLE:
        values = g.emit(op.gather_elements(tensor, places, axis))
    return [g.tensor(values, own), places]


def sort(
    g: Graph, x: Value, dim: int = -1, descending: bool = False, stable: bool = False
) -> list[relax.Expr]:
    """All elements along an axis in order, and their places; equal ones as they stand."""
    tensor = g.tensor(x)
    if not tensor.ty.ndim:
        return _of_one(g, tensor)
    return topk(g, tensor, ALL, dim, descending, True)


def _extreme(
    value: Callable[..., relax.Expr], place: Callable[..., relax.Expr]
) -> Callable[..., list[relax.Expr]]:
    """The greatest or least value along an axis, and where it stands."""

    def convert(g: Graph, x: Value, dim: int, keepdim: bool) -> list[relax.Expr]:
        tensor = g.tensor(x)
        if not tensor.ty.ndim:
            return _of_one(g, tensor)
        if dtype_of(tensor) == "bool":  # of which TVM has no order
            tensor = g.emit(op.astype(tensor, "int32"))
        found = g.tensor(g.emit(value(tensor, dim, keepdim)), g.dtype)
        return [found, _place(g, place, tensor, dim, keepdim)]

    return convert


def _position(place: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
    def convert(g: Graph, x: Value, dim: int | None = None, keepdim: bool = False) -> relax.Expr:
        tensor = g.tensor(x)
        if dim is not None:
            return _place(g, place, tensor, dim, keepdim)
        found = _place(g, place, g.emit(op.reshape(tensor, [-1])), 0, False)
        return op.reshape(found, g.shape) if keepdim else found

    return convert


def _place(
    g: Graph, place: Callable[..., relax.Expr], x: relax.Expr, axis: int, keepdim: bool
) -> relax.Expr:
    if not x.ty.ndim:
        return g.tensor(torch.zeros((), dtype=torch.int64))
    count = getattr(x.ty.shape.values[axis], "value", None)
    if dtype_of(x) == DOUBLE:
        x = keys(g, x, _MOST if place is op.argmax else ~_MOST)
    if dtype_of(x) in ("int32", "int64") and count:
        return _first(g, op.max if place is op.argmax else op.min, x, axis % x.ty.ndim, keepdim)
    return g.tensor(g.emit(place(x, axis, keepdim)), "int64")


def _first(
    g: Graph, value: Callable[..., relax.Expr], x: relax.Expr, axis: int, keepdim: bool
) -> relax.Expr:
    """The first place of the greatest or least integer, as kernels have it of floats alone."""
    count, rank = int(x.ty.shape.values[axis]), x.ty.ndim
    at = _numbers(count, rank, axis)
    found = op.equal(x, g.emit(value(x, [axis], True)))
    places = op.where(g.emit(found), g.tensor(at), g.tensor(count, "int64"))
    return op.min(g.emit(places), [axis], keepdim)


def _numbers_along(g: Graph, tensor: relax.Expr, axis: int) -> relax.Expr:
    """0, 1, ... along an axis of a tensor, whose extent need not be known."""
    extent, rank = tensor.ty.shape.values[axis], tensor.ty.ndim
    known = getattr(extent, "value", None)
    if known is not None:
        return g.tensor(_numbers(int(known), rank, axis))
    counted = g.emit(op.arange(0, extent, 1, "int64"))
    return g.emit(op.reshape(counted, [extent] + [1] * (rank - 1 - axis)))


def _in_shape(g: Graph, *results: relax.Expr) -> list[relax.Expr]:
    """Results with an axis of extent 1, or without it where the node does not keep it."""
    return [op.reshape(g.emit(result), g.shape) for result in results]


def kth_value(g: Graph, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> list[relax.Expr]:
    """The ``k``-th least element along an axis, and a place of it; NaN is the greatest."""
    tensor = g.tensor(x)
    if not tensor.ty.ndim:
        return _of_one(g, tensor)
    axis = dim % tensor.ty.ndim
    return _in_shape(g, *_kth(g, tensor, k, axis))


def _kth(g: Graph, tensor: relax.Expr, k: int, axis: int) -> list[relax.Expr]:
    least = topk(g, tensor, k, axis, False, True)
    return [g.emit(part_of(part, axis, k - 1, k)) for part in least]


def _middle(g: Graph, tensor: relax.Expr, axis: int) -> list[relax.Expr]:
    """The lower one of the middle elements along an axis, whose extent need not be known."""
    extent = tensor.ty.shape.values[axis]
    known = getattr(extent, "value", None)
    if known is not None:
        return _kth(g, tensor, (int(known) + 1) // 2, axis)
    middle = tirx.max(extent - 1, 0) // 2
    parts = topk(g, tensor, ALL, axis, False, True)
    return [g.emit(part_of(part, axis, middle, middle + 1)) for part in parts]


def median(g: Graph, x: Value) -> relax.Expr:
    """The median of all elements, the lower one of two; NaN where one is."""
    return _of_all(g, x, median_along)


def median_along(g: Graph, x: Value, dim: int, keepdim: bool = False) -> list[relax.Expr]:
    """The same along an axis, and a place of it; of NaN the first one."""
    tensor = g.tensor(x)
    if not tensor.ty.ndim:
        return _of_one(g, tensor)
    axis = dim % tensor.ty.ndim
    value, place = _middle(g, tensor, axis)
    if g.results[0].dtype.is_floating_point:
        most = g.emit(greatest(tensor, [axis], True))
        none = g.emit(op.isnan(most))
        value = op.where(none, most, value)
        place = op.where(none, _place(g, op.argmax, tensor, axis, True), place)
    return _in_shape(g, value, place)


def median_of_numbers(g: Graph, x: Value) -> relax.Expr:
    """The median of all elements that are not NaN."""
    return _of_all(g, x, median_of_numbers_along)


def median_of_numbers_along(
    g: Graph, x: Value, dim: int, keepdim: bool = False
) -> list[relax.Expr]:
    """The same along an axis, and a place of it."""
    tensor = g.tensor(x)
    if not g.results[0].dtype.is_floating_point or not tensor.ty.ndim:
        return median_along(g, x, dim, keepdim)
    axis = dim % tensor.ty.ndim
    values, places = topk(g, tensor, ALL, axis, False, True)  # NaN is behind all numbers
    number = op.astype(op.logical_not(op.isnan(tensor)), "int64")
    number = g.emit(op.sum(g.emit(number), [axis], keepdims=True))
    middle = op.divide(
        op.maximum(op.subtract(number, g.tensor(1, "int64")), g.tensor(0, "int64")),
        g.tensor(2, "int64"),
    )
    middle = g.emit(middle)
    return _in_shape(g, *(op.gather_elements(part, middle, axis) for part in (values, places)))


def _of_all(g: Graph, x: Value, along: Callable[..., list[relax.Expr]]) -> relax.Expr:
    return along(g, g.emit(op.reshape(g.tensor(x), [-1])), 0)[0]


def mode(g: Graph, x: Value, dim: int = -1, keepdim: bool = False) -> list[relax.Expr]:
    """The commonest element along an axis, the least of several, and its last place.

    Equal elements stand side by side once they are sorted; the longest run tells.
    """
    tensor = g.tensor(x)
    if not tensor.ty.ndim:
        return _of_one(g, tensor)
    axis = dim % tensor.ty.ndim
    extent = tensor.ty.shape.values[axis]
    values, places = sort(g, tensor, axis, False, True)
    at = g.tensor(_numbers_along(g, tensor, axis), "int32")
    before = op.concat([part_of(values, axis, 0, 1), part_of(values, axis, 0, extent - 1)], axis)
    is_one = getattr(extent, "value", None) == 1
    new = op.isnan(values) if is_one else op.not_equal(values, g.emit(before))
    began = _scan(g, op.where(g.emit(new), at, g.tensor(0, "int32")), axis, tirx.max)
    last = _place(g, op.argmax, g.emit(op.subtract(at, began)), axis, True)
    return _in_shape(g, *(op.gather_elements(part, last, axis) for part in (values, places)))


def _scan(
    g: Graph, x: relax.Expr, axis: int, choose: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]
) -> relax.Expr:
    """What is chosen of all elements up to each."""

    def loops(x: te.Tensor) -> te.Tensor:
        return topi.scan.scanop(x, choose, tirx.const(0, x.dtype), "scan", axis)

    return g.emit(g.builder.emit_te(loops, g.emit(x)))


def _cumulative(is_greatest: bool) -> Callable[..., list[relax.Expr]]:
    """The greatest or least element up to each along an axis, and the last place of it; NaN from
    the first one on."""

    def choose(before: tirx.Expr, here: tirx.Expr) -> tirx.Expr:
        wins = before >= here if is_greatest else before <= here
        if str(before.ty.dtype).startswith(("float", "bfloat")):
            wins = tirx.any(tirx.isnan(before), tirx.all(tirx.Not(tirx.isnan(here)), wins))
        return tirx.Select(wins, before, here)

    def convert(g: Graph, x: Value, dim: int) -> list[relax.Expr]:
        tensor = g.tensor(x)
        if not tensor.ty.ndim:
            return _of_one(g, tensor)
        axis = dim % tensor.ty.ndim
        if g.dtype == "bool":
            tensor = g.emit(op.astype(tensor, "int32"))
        elif g.dtype == "bfloat16":  # of which TVM does not know whether it is a number
            tensor = g.emit(op.astype(tensor, "float32"))
        made = _scan(g, tensor, axis, choose)
        at = _numbers_along(g, tensor, axis)
        is_it = op.equal(tensor, made)
        if g.results[0].dtype.is_floating_point:
            is_it = op.logical_or(is_it, op.isnan(tensor))
        places = op.where(g.emit(is_it), at, g.tensor(0, "int64"))
        return [g.tensor(made, g.dtype), _scan(g, places, axis, tirx.max)]

    return convert


def log_cumulative_sum(g: Graph, x: Value, dim: int) -> relax.Expr:
    """The logarithm of the sum of ``exp`` of all elements up to each along an axis."""

    def both(before: tirx.Expr, here: tirx.Expr) -> tirx.Expr:
        greater, less = tirx.max(before, here), tirx.min(before, here)
        made = greater + tirx.log(1 + tirx.exp(less - greater))
        made = tirx.Select(tirx.isinf(greater), greater, made)  # infinite, or the sum of nothing
        return tirx.Select(tirx.any(tirx.isnan(before), tirx.isnan(here)), before + here, made)

    tensor = g.tensor(x, g.dtype)
    if not tensor.ty.ndim:
        return tensor
    wide = g.tensor(tensor, "float64" if g.dtype == "float64" else "float32")
    return g.tensor(_scan(g, wide, dim % tensor.ty.ndim, both), g.dtype)


ORDER = {
    "logcumsumexp": log_cumulative_sum,
    "max.dim": _extreme(greatest, op.argmax),
    "min.dim": _extreme(least, op.argmin),
    "argmax": _position(op.argmax),
    "argmin": _position(op.argmin),
    "topk": topk,
    "sort": sort,
    "kthvalue": kth_value,
    "median.default": median,
    "median.dim": median_along,
    "nanmedian.default": median_of_numbers,
    "nanmedian.dim": median_of_numbers_along,
    "mode": mode,
    "cummax": _cumulative(True),
    "cummin": _cumulative(False),
}
