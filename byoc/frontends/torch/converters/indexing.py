"""What reads or writes elements by their places."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

import numpy as np
import torch
from tvm import relax

from byoc.frontends.torch.sizes import size_tensor
from byoc.frontends.torch.values import Graph, Value
from byoc.ir.dataflow import static_shape_of
from codegen_cc.region.relax_dims import relax_dims

op = relax.op


def _wrapped(g: Graph, places: Value, extent: object) -> relax.Expr:
    """Places that may be counted from the end, counted from the start."""
    if isinstance(places, torch.Tensor):
        size = getattr(extent, "value", extent)
        if not isinstance(size, int) and bool((places < 0).any()):
            raise ValueError("places from the end of an axis of unknown extent")
        return g.tensor(
            torch.where(places < 0, places + size, places) if (places < 0).any() else places
        )
    tensor = g.tensor(places)
    dtype = str(tensor.ty.dtype)
    beyond = op.add(tensor, size_tensor(g.builder, extent, dtype))
    return g.emit(op.where(op.less(tensor, g.tensor(0, dtype)), beyond, tensor))


def index_select(g: Graph, x: Value, dim: int, index: Value) -> relax.Expr:
    """Slices of an axis by their places."""
    tensor = g.tensor(x)
    axis = dim % tensor.ty.ndim
    return op.take(tensor, g.tensor(index), axis)


def embedding(
    g: Graph,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> relax.Expr:
    """Rows of a table by their numbers; the other arguments are about gradients."""
    return op.take(g.tensor(weight), g.tensor(indices), 0)


def gather(g: Graph, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> relax.Expr:
    """Along one axis, for every element of ``index`` the one at that place.

    Along others the index may end before ``x`` does; PyTorch's tracer notes that it may not end
    later, which each call looks at.
    """
    tensor, places = g.tensor(x), g.tensor(index)
    if not tensor.ty.ndim:
        return tensor
    axis = dim % tensor.ty.ndim
    extents, wanted = list(tensor.ty.shape.values), list(places.ty.shape.values)
    cut = [
        a
        for a in range(tensor.ty.ndim)
        if a != axis and relax_dims([extents[a]]) != relax_dims([wanted[a]])
    ]
    if any(not isinstance(n, int) for a in cut for n in relax_dims([extents[a], wanted[a]])):
        ends = [wanted[a] for a in cut]
        part = op.strided_slice(tensor, cut, [0] * len(cut), ends, assume_inbound=True)
        tensor = g.emit(part)
    return op.gather_elements(tensor, places, axis)


def index(g: Graph, x: Value, indices: Sequence[Value | None]) -> relax.Expr:
    """Elements at places of several axes, which broadcast with each other.

    Axes that are indexed side by side become one, whose places are computed.
    """
    tensor = g.tensor(x)
    axes = [axis for axis, places in enumerate(indices) if places is not None]
    first, rank = axes[0], tensor.ty.ndim
    if axes != list(range(first, first + len(axes))):
        order = [*axes, *(axis for axis in range(rank) if axis not in axes)]
        tensor, indices = g.emit(op.permute_dims(tensor, order)), [indices[axis] for axis in axes]
        first = 0
    else:
        indices = [indices[axis] for axis in axes]
    shape = list(tensor.ty.shape.values)
    extents = shape[first : first + len(axes)]
    places = [_wrapped(g, p, e) for p, e in zip(indices, extents, strict=True)]
    if len(places) > 1:
        flat = g.tensor(places[0], "int64")
        for more, extent in zip(places[1:], extents[1:], strict=True):
            width = size_tensor(g.builder, extent, "int64")
            flat = g.emit(op.add(op.multiply(flat, width), g.tensor(more, "int64")))
        whole = reduce(lambda a, b: a * b, extents)
        joined = [*shape[:first], whole, *shape[first + len(axes) :]]
        tensor, places = g.emit(op.reshape(tensor, joined)), [flat]
    return op.take(tensor, places[0], first)


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
    return op.scatter_elements(tensor, places, g.emit(source), axis)


#: TVM's names of what PyTorch does with elements that meet at one place.
_MEETING = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


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
    if include_self and kind != "mean":
        return op.scatter_elements(x, places, part, axis, way)
    ones = op.broadcast_to(g.tensor(1, g.dtype), list(places.ty.shape.values))
    nothing = g.emit(op.broadcast_to(g.tensor(0, g.dtype), list(x.ty.shape.values)))
    met = g.emit(op.scatter_elements(nothing, places, g.emit(ones), axis, "add"))
    if not include_self:
        begin = g.tensor(_begin(kind, g.results[0].dtype), g.dtype)
        x = g.emit(op.where(op.greater(met, g.tensor(0, g.dtype)), begin, x))
    made = g.emit(op.scatter_elements(x, places, part, axis, way))
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
    places = g.emit(op.reshape(_wrapped(g, index, whole), [-1]))
    kind = "add" if accumulate else "update"
    made = op.scatter_elements(g.emit(flat), places, g.emit(part), 0, kind)
    return op.reshape(g.emit(made), g.shape)


def masked_scatter(g: Graph, x: Value, mask: Value, source: Value) -> relax.Expr:
    """``x`` with the elements of ``source``, one after another, where the mask is true."""
    chosen = g.emit(op.broadcast_to(g.tensor(mask, "bool"), g.shape))
    flat = g.emit(op.reshape(chosen, [-1]))
    number = op.cumsum(g.emit(op.astype(flat, "int64")), 0)
    place = op.maximum(op.subtract(number, g.tensor(1, "int64")), g.tensor(0, "int64"))
    given = g.emit(op.reshape(g.tensor(source), [-1]))
    taken = op.reshape(g.emit(op.take(given, g.emit(place), 0)), g.shape)
    return op.where(chosen, g.emit(taken), op.broadcast_to(g.tensor(x), g.shape))


def _static(tensor: relax.Expr) -> tuple[int, ...]:
    shape = static_shape_of(tensor)
    if shape is None:
        raise ValueError("places whose number is a symbol; need fixed extents")
    return tuple(shape)


def _broadcast(places: Sequence[relax.Expr]) -> list[object]:
    """The shape that tensors of places have together."""
    if all(static_shape_of(p) is not None for p in places):
        return list(torch.broadcast_shapes(*(_static(p) for p in places)))
    shapes = [list(p.ty.shape.values) for p in places]
    rank = max(map(len, shapes))
    known: list[object] = []
    for axis in range(-rank, 0):
        extents = [shape[axis] for shape in shapes if len(shape) >= -axis]
        wide = [extent for extent in extents if getattr(extent, "value", extent) != 1]
        if any(relax_dims([extent]) != relax_dims(wide[:1]) for extent in wide):
            raise ValueError(f"places of shapes {shapes}; need equal ones, or fixed extents")
        known.append(wide[0] if wide else 1)
    return known


#: Elements for each coordinate from which on a tensor is not turned to write some of its rows.
_FEW = 4


def index_put(
    g: Graph, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> relax.Expr:
    """``x`` with values at places of several axes, or with them added there."""
    tensor, source = g.tensor(x), g.tensor(values, g.dtype)
    axes = [axis for axis, places in enumerate(indices) if places is not None]
    places = [g.tensor(indices[axis]) for axis in axes]
    if any(str(p.ty.dtype) in ("bool", "uint8") for p in places):
        return _put_by_mask(g, tensor, axes, places, source, accumulate)
    first, count, rank = axes[0], len(axes), tensor.ty.ndim
    if axes != list(range(first, first + count)):
        raise ValueError(f"places of axes {axes}; need axes side by side")
    extents = list(tensor.ty.shape.values)
    known = _broadcast(places)
    flat = None
    for p, extent in zip(places, extents[first : first + count], strict=True):
        own = g.tensor(_wrapped(g, p, extent), "int64")
        if flat is not None:
            own = g.emit(op.add(op.multiply(flat, size_tensor(g.builder, extent, "int64")), own))
        flat = own
    number = prod(known)
    flat = g.emit(op.reshape(op.broadcast_to(flat, known), [number, 1]))
    wide = op.broadcast_to(source, [*extents[:first], *known, *extents[first + count :]])
    kind = "add" if accumulate else "update"
    shape = static_shape_of(tensor) if isinstance(number, int) else None
    if shape and 0 < number * prod(shape[:first]) * (first + 1) <= prod(shape) // _FEW:
        return _put_where_it_lies(g, tensor, g.emit(wide), flat, first, count, kind)
    # The axes with places go first, those of the values as well.
    others = [axis for axis in range(rank) if axis not in axes]
    order = [*axes, *others]
    kept = [extents[axis] for axis in others]
    whole = reduce(lambda a, b: a * b, extents[first : first + count])
    data = op.reshape(op.permute_dims(tensor, order), [whole, *kept])
    inner = list(range(first, first + len(known)))
    turned = [*inner, *(i for i in range(len(known) + len(kept)) if i not in inner)]
    updates = op.reshape(op.permute_dims(wide, turned), [number, *kept])
    made = op.scatter_nd(data, flat, updates, kind)
    made = op.reshape(made, [extents[axis] for axis in order])
    return op.permute_dims(made, [order.index(axis) for axis in range(rank)])


def _put_where_it_lies(
    g: Graph, x: relax.Expr, values: relax.Expr, flat: relax.Expr, first: int, count: int, kind: str
) -> relax.Expr:
    """``index_put`` by coordinates of the axes before the first one with places as well."""
    shape, number = _static(x), int(flat.ty.shape.values[0])
    before, kept = shape[:first], shape[first + count :]
    data = op.reshape(x, [*before, prod(shape[first : first + count]), *kept])
    own = np.indices((*before, number), np.int64)[:first]
    places = [g.tensor(torch.from_numpy(np.ascontiguousarray(axis[..., None]))) for axis in own]
    last = g.emit(op.broadcast_to(flat, [*before, number, 1]))
    indices = g.emit(op.concat([*places, last], first + 1))
    updates = op.reshape(values, [*before, number, *kept])
    return op.reshape(op.scatter_nd(data, indices, updates, kind), list(shape))


def _put_by_mask(
    g: Graph,
    tensor: relax.Expr,
    axes: Sequence[int],
    places: Sequence[relax.Expr],
    source: relax.Expr,
    accumulate: bool,
) -> relax.Expr:
    """Values where a mask of the first axes is true: one row after another, or one for all."""
    if list(axes) != [0]:
        raise ValueError("elements that a mask and places pick; need the mask alone")
    (mask,) = places
    # Its extents are those of the tensor, which may be written otherwise.
    extents, count = list(tensor.ty.shape.values), mask.ty.ndim
    shape = [*extents[:count], *[1] * (len(extents) - count)]
    chosen = g.tensor(mask, "bool")
    given = list(source.ty.shape.values)
    if len(given) <= len(extents) - count or getattr(given[0], "value", None) == 1:
        inner = given[-min(len(given), len(extents) - count) :] if len(extents) > count else []
        value = op.reshape(source, [1] * (len(extents) - len(inner)) + inner)
    else:
        number = op.cumsum(g.emit(op.astype(op.reshape(chosen, [-1]), "int64")), 0)
        place = op.maximum(op.subtract(number, g.tensor(1, "int64")), g.tensor(0, "int64"))
        # A row more, of which one is read where there are none.
        more = op.zeros([1, *given[1:]], str(source.ty.dtype))
        rows = op.take(g.emit(op.concat([source, more], 0)), g.emit(place), 0)
        value = op.reshape(g.emit(rows), [*extents[:count], *given[1:]])
    value = g.emit(value)
    if accumulate:
        value = g.emit(op.add(tensor, value))
    return op.where(g.emit(op.reshape(chosen, shape)), value, tensor)


def places_among(
    g: Graph, x: Value, boundaries: Value, right: bool, out_int32: bool = False
) -> relax.Expr:
    """How many of the boundaries, which ascend, lie below each element, or not above it; each line
    of elements has its own boundaries where these have more than one axis."""
    limits, tensor = g.tensors(boundaries, x)
    if limits.ty.ndim > 1:
        limits = g.emit(op.expand_dims(limits, limits.ty.ndim - 1))
    each = g.emit(op.expand_dims(tensor, tensor.ty.ndim))
    above = (op.less if right else op.less_equal)(each, limits)  # of NaN neither
    return op.sum(g.tensor(g.emit(op.logical_not(above)), g.dtype), [tensor.ty.ndim])


def bucketize(
    g: Graph, x: Value, boundaries: Value, out_int32: bool = False, right: bool = False
) -> relax.Expr:
    """The same."""
    return places_among(g, x, boundaries, right)


def searchsorted(
    g: Graph,
    sorted_sequence: Value,
    x: Value,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> relax.Expr:
    """The same, with the boundaries first."""
    if sorter is not None:
        given, places = g.tensor(sorted_sequence), g.tensor(sorter, "int64")
        sorted_sequence = g.emit(op.gather_elements(given, places, given.ty.ndim - 1))
    return places_among(g, x, sorted_sequence, right or side == "right")


def histogram(g: Graph, x: Value, bins: int = 100, min: Value = 0, max: Value = 0) -> relax.Expr:
    """How many elements lie in each of ``bins`` equal parts between two numbers, both included;
    between the least and the greatest element where the numbers are equal."""
    flat = g.emit(op.reshape(g.tensor(x), [-1, 1]))
    low, high = g.tensor(float(min)), g.tensor(float(max))
    if min == max:
        low, high = g.emit(op.min(flat)), g.emit(op.max(flat))
        alike, one = g.emit(op.equal(low, high)), g.tensor(1.0)
        low = g.emit(op.where(alike, op.subtract(low, one), low))
        high = g.emit(op.where(alike, op.add(high, one), high))
    share = g.emit(op.multiply(op.subtract(flat, low), g.tensor(float(bins))))
    share = g.emit(op.divide(share, g.emit(op.subtract(high, low))))
    # The greatest number is in the last part; what lies outside, or is none, in no part.
    part = op.minimum(g.emit(op.floor(share)), g.tensor(bins - 1.0))
    found = op.equal(g.emit(part), g.tensor(torch.arange(bins, dtype=getattr(torch, g.dtype))))
    within = op.logical_and(op.less_equal(flat, high), op.greater_equal(flat, low))
    counted = op.astype(op.logical_and(found, g.emit(within)), g.dtype)
    return op.sum(g.emit(counted), [0])


INDEXING = {
    "index_select": index_select,
    "embedding": embedding,
    "gather": gather,
    "scatter.src": scatter,
    "scatter.value": scatter,
    "scatter_add": scatter_add,
    "scatter_reduce.two": scatter_reduce,
    "index_reduce": index_reduce,
    "put": put,
    "masked_scatter": masked_scatter,
    "index_put": index_put,
    "bucketize.Tensor": bucketize,
    "searchsorted.Tensor": searchsorted,
    "histc": histogram,
}
