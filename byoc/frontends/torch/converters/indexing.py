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


def from_start(g: Graph, places: Value, extent: object) -> relax.Expr:
    """Places that may be counted from the end, counted from the start."""
    size = getattr(extent, "value", extent)
    if isinstance(places, torch.Tensor) and not bool((places < 0).any()):
        return g.tensor(places)
    if isinstance(places, torch.Tensor) and isinstance(size, int):
        return g.tensor(torch.where(places < 0, places + size, places))
    tensor = g.tensor(places)
    dtype = str(tensor.ty.dtype)
    beyond = op.add(tensor, size_tensor(g.builder, extent, dtype))
    return g.emit(op.where(op.less(tensor, g.tensor(0, dtype)), beyond, tensor))


def is_element(index: Value) -> bool:
    """Whether a place is read from a tensor, and may be counted from the end."""
    return isinstance(index, relax.Expr) and isinstance(index.ty, relax.TensorType)


def slice_places(g: Graph, begin: Value, extent: object, count: Value, step: int) -> relax.Expr:
    """The places of a slice that begins at a size, or at an element, which may be counted from the
    end, as int64. A call that makes the axis too short for them is refused."""
    if is_element(begin):
        first = from_start(g, g.tensor(begin, "int64"), extent)
    else:
        first = size_tensor(g.builder, begin, "int64")
    if isinstance(count, int):
        behind = g.tensor(torch.arange(count) * step)
    else:
        behind = g.emit(op.arange(0, count * step, step, "int64"))
    return g.emit(op.add(first, behind))


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
    places = [from_start(g, p, e) for p, e in zip(indices, extents, strict=True)]
    if len(places) > 1:
        flat = g.tensor(places[0], "int64")
        for more, extent in zip(places[1:], extents[1:], strict=True):
            width = size_tensor(g.builder, extent, "int64")
            flat = g.emit(op.add(op.multiply(flat, width), g.tensor(more, "int64")))
        whole = reduce(lambda a, b: a * b, extents)
        joined = [*shape[:first], whole, *shape[first + len(axes) :]]
        tensor, places = g.emit(op.reshape(tensor, joined)), [flat]
    return op.take(tensor, places[0], first)


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
    given = [indices[axis] for axis in axes]
    if accumulate and g.dtype == "bool":  # of which TVM has no sums
        tensor, source = g.tensor(tensor, "int32"), g.tensor(source, "int32")
        return g.tensor(g.emit(_put(g, tensor, axes, given, source, "add")), "bool")
    return _put(g, tensor, axes, given, source, "add" if accumulate else "update")


def _put(
    g: Graph,
    tensor: relax.Expr,
    axes: Sequence[int],
    indices: Sequence[Value],
    source: relax.Expr,
    kind: str,
) -> relax.Expr:
    """``tensor`` with values at places of some of its axes."""
    first, count, rank = axes[0], len(axes), tensor.ty.ndim
    if list(axes) != list(range(first, first + count)):
        # Axes apart go first, and so do the places among those of the values.
        order = [*axes, *(axis for axis in range(rank) if axis not in axes)]
        turned = g.emit(op.permute_dims(tensor, order))
        made = g.emit(_put(g, turned, range(count), indices, source, kind))
        return op.permute_dims(made, [order.index(axis) for axis in range(rank)])
    places = [g.tensor(p) for p in indices]
    extents = list(tensor.ty.shape.values)
    known = _broadcast(places)
    flat = None
    for p, extent in zip(indices, extents[first : first + count], strict=True):
        own = g.tensor(from_start(g, p, extent), "int64")
        if flat is not None:
            own = g.emit(op.add(op.multiply(flat, size_tensor(g.builder, extent, "int64")), own))
        flat = own
    number = prod(known)
    flat = g.emit(op.reshape(op.broadcast_to(flat, known), [number, 1]))
    wide = op.broadcast_to(source, [*extents[:first], *known, *extents[first + count :]])
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
    """Values where a mask of some axes is true: one row after another, or one for all."""
    if len(axes) != 1:
        raise ValueError("elements that a mask and places pick; need the mask alone")
    (mask,), at = places, axes[0]
    # Its extents are those of the tensor, which may be written otherwise.
    extents, count = list(tensor.ty.shape.values), mask.ty.ndim
    inner = len(extents) - at - count
    own = extents[at : at + count]
    chosen = g.emit(op.reshape(g.tensor(mask, "bool"), [*[1] * at, *own, *[1] * inner]))
    given = list(source.ty.shape.values)
    rows = len(given) - inner - 1
    if rows < 0:
        value = source
    else:
        before, behind = given[:rows], given[rows + 1 :]
        if getattr(given[rows], "value", None) == 1:
            value = op.reshape(source, [*before, *[1] * count, *behind])
        else:
            number = op.cumsum(g.emit(op.astype(op.reshape(mask, [-1]), "int64")), 0)
            place = op.maximum(op.subtract(number, g.tensor(1, "int64")), g.tensor(0, "int64"))
            # A row more, of which one is read where there are none.
            more = op.zeros([*before, 1, *behind], str(source.ty.dtype))
            taken = op.take(g.emit(op.concat([source, more], rows)), g.emit(place), rows)
            value = op.reshape(g.emit(taken), [*before, *own, *behind])
    value = g.fitted(g.emit(value))
    if accumulate:
        value = g.emit((op.logical_or if g.dtype == "bool" else op.add)(tensor, value))
    return op.where(chosen, value, tensor)


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
    "masked_scatter": masked_scatter,
    "index_put": index_put,
    "bucketize.Tensor": bucketize,
    "searchsorted.Tensor": searchsorted,
    "histc": histogram,
}
