"""What reads or writes elements by their places, and sorting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from tvm import relax

from byoc.frontends.torch.converters.movement import part_of
from byoc.frontends.torch.values import Graph, Value

op = relax.op


def _size(g: Graph, extent: object, dtype: str) -> relax.Expr:
    """An extent as a tensor without axes."""
    size = getattr(extent, "value", extent)
    if isinstance(size, int):
        return g.tensor(size, dtype)
    counted = g.emit(op.arange(0, extent + 1, 1, dtype))  # from 0, as the kernel does
    return g.emit(op.reshape(part_of(counted, 0, extent, extent + 1), []))


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
    beyond = op.add(tensor, _size(g, extent, dtype))
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
    """Along one axis, for every element of ``index`` the one at that place."""
    tensor = g.tensor(x)
    return op.gather_elements(tensor, g.tensor(index), dim % tensor.ty.ndim)


def index(g: Graph, x: Value, indices: Sequence[Value | None]) -> relax.Expr:
    """Elements at places of several axes, which broadcast with each other.

    Axes that are indexed side by side become one, whose places are computed.
    """
    tensor = g.tensor(x)
    axes = [axis for axis, places in enumerate(indices) if places is not None]
    if any(str(g.tensor(indices[axis]).ty.dtype) in ("bool", "uint8") for axis in axes):
        raise ValueError("elements that a mask picks, whose number data decide")
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
            width = _size(g, extent, "int64")
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


def topk(g: Graph, x: Value, k: int, dim: int, largest: bool, sorted: bool) -> list[relax.Expr]:
    """The ``k`` greatest or least elements along an axis, and their places."""
    tensor = g.tensor(x)
    made = op.topk(tensor, k, dim % tensor.ty.ndim, "both", largest, "int64")
    both = g.emit(made)
    return [g.emit(relax.TupleGetItem(both, i)) for i in range(2)]


def sort(
    g: Graph, x: Value, dim: int = -1, descending: bool = False, stable: bool = False
) -> list[relax.Expr]:
    """All elements along an axis in order, and their places."""
    tensor = g.tensor(x)
    axis = dim % tensor.ty.ndim
    places = g.emit(op.argsort(tensor, axis, descending, "int64"))
    return [g.emit(op.gather_elements(tensor, places, axis)), places]


INDEXING = {
    "index_select": index_select,
    "embedding": embedding,
    "gather": gather,
    "index.Tensor": index,
    "scatter.src": scatter,
    "scatter.value": scatter,
    "topk": topk,
    "sort": sort,
}
