"""What writes elements at places along an axis."""

from __future__ import annotations

from functools import reduce

import torch
from tvm import relax

from byoc.frontends.torch.converters.indexing import from_start
from byoc.frontends.torch.converters.movement import part_of
from byoc.frontends.torch.values import Graph, Value
from codegen_cc.region.relax_dims import relax_dims

op = relax.op


def scatter(
    g: Graph, x: Value, dim: int, index: Value, src: Value = None, value: Value = None
) -> relax.Expr:
    """``x`` with elements of ``src``, or a number, at places along an axis."""
    tensor, places = g.tensor(x), g.tensor(index)
    axis = dim % tensor.ty.ndim
    if src is None:
        number = g.tensor(value, g.dtype)
        source = op.broadcast_to(number, list(places.ty.shape.values))
    else:
        source = g.tensor(src, g.dtype)
        ends = list(places.ty.shape.values)
        source = op.strided_slice(source, list(range(len(ends))), [0] * len(ends), ends)
    return _scattered(g, tensor, places, g.emit(source), axis, "update")


def _scattered(
    g: Graph, x: relax.Expr, places: relax.Expr, part: relax.Expr, axis: int, kind: str
) -> relax.Expr:
    """``x`` with elements of ``part`` at places along an axis.

    Places may end before ``x`` does along other axes; where extents are open, what lies beyond is
    put behind the rest, as TVM's loops suppose that they end where ``x`` does.
    """
    extents, ends = list(x.ty.shape.values), list(places.ty.shape.values)
    cut = [
        a
        for a, pair in enumerate(zip(extents, ends, strict=True))
        if a != axis and relax_dims(pair[:1]) != relax_dims(pair[1:])
    ]
    if all(isinstance(n, int) for a in cut for n in relax_dims([extents[a], ends[a]])):
        return op.scatter_elements(x, places, part, axis, kind)
    first, rest = x, []
    for a in cut:
        rest.append(g.emit(part_of(first, a, ends[a], extents[a])))
        first = g.emit(part_of(first, a, 0, ends[a]))
    made = op.scatter_elements(first, places, part, axis, kind)
    for a, behind in reversed(list(zip(cut, rest, strict=True))):
        made = op.concat([g.emit(made), behind], a)
    return made


#: TVM's names of what PyTorch does with elements that meet at one place.
_MEETING = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


#: What the older form of ``scatter`` calls them.
_OLDER = {"add": "sum", "multiply": "prod"}


def scatter_with(
    g: Graph, x: Value, dim: int, index: Value, reduce: str, src: Value = None, value: Value = None
) -> relax.Expr:
    """``x`` with elements, or a number, added or multiplied at places along an axis."""
    if src is None:
        ends = list(g.tensor(index).ty.shape.values)
        src = g.emit(op.broadcast_to(g.tensor(value, g.dtype), ends))
    return scatter_reduce(g, x, dim, index, src, _OLDER[reduce])


def scatter_add(g: Graph, x: Value, dim: int, index: Value, src: Value) -> relax.Expr:
    """``x`` with elements of ``src`` added at places along an axis."""
    return scatter_reduce(g, x, dim, index, src, "sum")


def scatter_reduce(
    g: Graph,
    x: Value,
    dim: int,
    index: Value,
    src: Value,
    reduce: str,
    include_self: bool = True,
) -> relax.Expr:
    """The same with products, means, or the greatest or least elements.

    Elements of ``x`` that others meet do not count themselves without ``include_self``.
    """
    tensor, places = g.tensor(x), g.tensor(index)
    ends = list(places.ty.shape.values)
    part = op.strided_slice(g.tensor(src), list(range(len(ends))), [0] * len(ends), ends)
    return _reduced(g, tensor, dim % tensor.ty.ndim, places, g.emit(part), reduce, include_self)


def index_reduce(
    g: Graph,
    x: Value,
    dim: int,
    index: Value,
    source: Value,
    reduce: str,
    include_self: bool = True,
) -> relax.Expr:
    """The same with slices of ``source`` at places along an axis."""
    tensor, part = g.tensor(x), g.tensor(source)
    axis = dim % tensor.ty.ndim
    shape = [1] * tensor.ty.ndim
    shape[axis] = part.ty.shape.values[axis]
    places = op.reshape(g.tensor(index, "int64"), shape)
    places = g.emit(op.broadcast_to(places, list(part.ty.shape.values)))
    return _reduced(g, tensor, axis, places, part, reduce, include_self)


def _reduced(
    g: Graph,
    x: relax.Expr,
    axis: int,
    places: relax.Expr,
    part: relax.Expr,
    kind: str,
    include_self: bool,
) -> relax.Expr:
    """``x`` with elements of ``part`` reduced at places along an axis."""
    way = _MEETING["sum" if kind == "mean" else kind]
    if g.dtype == "bool":  # of which TVM has no order and no sums
        if not include_self:
            raise ValueError("truths reduced without those of the tensor; need include_self=True")
        x, part = g.tensor(x, "int32"), g.tensor(part, "int32")
        return g.tensor(g.emit(_scattered(g, x, places, part, axis, way)), "bool")
    if include_self and kind != "mean":
        return _scattered(g, x, places, part, axis, way)
    ones = op.broadcast_to(g.tensor(1, g.dtype), list(places.ty.shape.values))
    nothing = g.emit(op.broadcast_to(g.tensor(0, g.dtype), list(x.ty.shape.values)))
    met = g.emit(_scattered(g, nothing, places, g.emit(ones), axis, "add"))
    if not include_self:
        begin = g.tensor(_begin(kind, g.results[0].dtype), g.dtype)
        x = g.emit(op.where(op.greater(met, g.tensor(0, g.dtype)), begin, x))
    made = g.emit(_scattered(g, x, places, part, axis, way))
    if kind != "mean":
        return made
    one = g.tensor(1, g.dtype)
    count = op.add(met, one) if include_self else op.maximum(met, one)
    is_float = g.results[0].dtype.is_floating_point
    return (op.divide if is_float else op.floor_divide)(made, g.emit(count))


def _begin(kind: str, dtype: torch.dtype) -> int | float:
    """What a reduction of nothing is."""
    if kind in ("sum", "mean", "prod"):
        return int(kind == "prod")
    if dtype.is_floating_point:
        return float("-inf" if kind == "amax" else "inf")
    return torch.iinfo(dtype).min if kind == "amax" else torch.iinfo(dtype).max


def put(g: Graph, x: Value, index: Value, source: Value, accumulate: bool = False) -> relax.Expr:
    """``x`` with elements of ``source`` at places in the whole tensor, or added there."""
    tensor = g.tensor(x)
    whole = reduce(lambda a, b: a * b, list(tensor.ty.shape.values), 1)
    flat, part = op.reshape(tensor, [-1]), op.reshape(g.tensor(source), [-1])
    places = g.emit(op.reshape(from_start(g, index, whole), [-1]))
    kind = "add" if accumulate else "update"
    made = op.scatter_elements(g.emit(flat), places, g.emit(part), 0, kind)
    return op.reshape(g.emit(made), g.shape)


SCATTERING = {
    "scatter.src": scatter,
    "scatter.value": scatter,
    "scatter.reduce": scatter_with,
    "scatter.value_reduce": scatter_with,
    "scatter_add": scatter_add,
    "scatter_reduce.two": scatter_reduce,
    "index_reduce": index_reduce,
    "put": put,
}
