"""Operators whose results are as large as the values say.

The library counts when it runs: such an extent is a symbol that a check of the result defines, and
what follows is as open as an axis of an input.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from tvm import relax

from byoc.frontends.torch.converters import indexing, movement
from byoc.frontends.torch.converters.indexing import is_element
from byoc.frontends.torch.converters.movement import part_of
from byoc.frontends.torch.sizes import size_tensor
from byoc.frontends.torch.values import Graph, Value
from byoc.ir.dataflow import dtype_of, shape_of
from codegen_cc.dim import same

op = relax.op


def _counted(g: Graph, expr: relax.Expr, shape: Sequence[Any]) -> relax.Var:
    """A tensor whose shape holds a size that data decide, which a check at run time defines."""
    kind = relax.TensorType(list(shape), dtype_of(expr))
    return g.builder.match_cast(expr, kind)


def _places(g: Graph, x: Value, size: Any) -> list[relax.Expr]:
    """Where elements are that are not 0: a vector for each axis, as long as ``size``.

    Of a constant they are counted while importing.
    """
    if isinstance(x, torch.Tensor) and x.dim():
        known = x.nonzero()
        g.symbols.found(size, len(known))
        return [g.tensor(column.contiguous()) for column in known.unbind(1)]
    tensor = g.tensor(x)
    rank = tensor.ty.ndim
    if not rank:
        raise ValueError("the places of a tensor without axes; need one axis or more")
    count = g.symbols.found(size)
    whole = _counted(g, g.emit(op.nonzero(tensor)), [rank, count])
    rows = (op.strided_slice(whole, [0], [axis], [axis + 1]) for axis in range(rank))
    return [g.emit(op.reshape(g.emit(row), [count])) for row in rows]


def nonzero(g: Graph, x: Value) -> relax.Expr:
    """The places of elements that are not 0, one in each row."""
    return op.stack(_places(g, x, g.results[0].shape[0]), 1)


def index(g: Graph, x: Value, indices: Sequence[Value | None]) -> relax.Expr:
    """Elements at places of several axes, or where a mask is true.

    A mask of several axes stands for as many vectors of places.
    """
    masks = [at for at, places in enumerate(indices) if places is not None and _is_mask(g, places)]
    if not masks:
        return indexing.index(g, x, indices)
    at = masks[0]
    if any(p is not None for p in (*indices[:at], *indices[at + 1 :])):
        raise ValueError("elements that a mask and places pick; need the mask alone")
    found = _places(g, indices[at], g.results[0].shape[at])
    return indexing.index(g, x, [*indices[:at], *found])


def _is_mask(g: Graph, places: Value) -> bool:
    return dtype_of(g.tensor(places)) in ("bool", "uint8")


def masked_select(g: Graph, x: Value, mask: Value) -> relax.Expr:
    """The elements where a mask is true, one after another, of tensors that broadcast."""
    tensor, chosen = g.tensor(x), g.tensor(mask, "bool")
    chosen = g.with_extents(chosen, _unlike(chosen, tensor))
    both = g.emit(op.where(chosen, tensor, tensor))
    shape = list(both.ty.shape.values)
    whole = op.reshape(g.emit(op.broadcast_to(chosen, shape)), [-1])
    (places,) = _places(g, g.emit(whole), g.results[0].shape[0])
    return op.take(g.emit(op.reshape(both, [-1])), places, 0)


def _unlike(tensor: relax.Expr, other: relax.Expr) -> dict[int, Any]:
    """What the axes of another tensor are, where those of the first have open sizes of their own
    and none is repeated: PyTorch has them equal."""
    extents, shape, wanted = other.ty.shape.values, shape_of(tensor), shape_of(other)
    axes = range(-min(len(shape), len(wanted)), 0)
    return {
        axis: extents[axis]
        for axis in axes
        if 1 not in (shape[axis], wanted[axis]) and not same(shape[axis], wanted[axis])
    }


def unique(
    g: Graph,
    x: Value,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> list[relax.Expr | None]:
    """The distinct elements in order; which of them each element is; how often each is found."""
    tensor = g.tensor(x)
    shape = list(tensor.ty.shape.values)
    if g.results[0].dtype.itemsize == 2 and g.results[0].dtype.is_floating_point:
        tensor = g.emit(op.astype(tensor, "float32"))  # halves are not ordered at run time
    made = op.unique(
        tensor, sorted=True, return_inverse=return_inverse, return_counts=return_counts
    )
    count = g.symbols.found(g.results[0].shape[0])
    whole = g.emit(made)
    if not return_inverse and not return_counts:
        return [g.tensor(_counted(g, whole, [count]), g.dtype), None, None]
    parts = iter(range(1, 3))
    first = _counted(g, g.emit(relax.TupleGetItem(whole, 0)), [count])
    inverse = counts = None
    if return_inverse:
        each = g.emit(relax.TupleGetItem(whole, next(parts)))
        flat = _counted(g, each, [reduce(lambda a, b: a * b, shape, 1)])
        inverse = op.reshape(flat, shape)
    if return_counts:
        counts = _counted(g, g.emit(relax.TupleGetItem(whole, next(parts))), [count])
    return [g.tensor(first, g.dtype), inverse, counts]


def unique_side_by_side(
    g: Graph,
    x: Value,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> list[relax.Expr | None]:
    """The elements that differ from the one before; which of them each element is; how many in a
    row are equal."""
    tensor = g.tensor(x)
    if dim is not None and tensor.ty.ndim != 1:
        raise ValueError(f"slices along axis {dim} that differ; need elements (dim=None)")
    shape = list(tensor.ty.shape.values)
    flat = g.emit(op.reshape(tensor, [-1]))
    length = flat.ty.shape.values[0]
    first = g.tensor(torch.zeros(1, dtype=getattr(torch, dtype_of(flat))))
    before = part_of(g.emit(op.concat([first, flat], 0)), 0, 0, length)
    at = g.emit(op.arange(0, length, 1, "int64"))
    new = g.emit(op.not_equal(flat, g.emit(before)))
    new = g.emit(op.logical_or(new, op.equal(at, g.tensor(0, "int64"))))
    (places,) = _places(g, new, g.results[0].shape[0])
    count = places.ty.shape.values[0]
    number = op.cumsum(g.emit(op.astype(new, "int64")), 0)
    inverse = op.reshape(g.emit(op.subtract(number, g.tensor(1, "int64"))), shape)
    end = g.emit(op.reshape(size_tensor(g.builder, length, "int64"), [1]))
    behind = part_of(g.emit(op.concat([places, end], 0)), 0, 1, count + 1)
    return [
        op.take(flat, places, 0),
        inverse if return_inverse else None,
        op.subtract(g.emit(behind), places) if return_counts else None,
    ]


def repeated_places(g: Graph, repeats: Value, output_size: Value | None = None) -> relax.Expr:
    """Each place as often as the vector says, as many in all as its sum."""
    size = g.results[0].shape[0]
    if isinstance(repeats, torch.Tensor):
        known = torch.repeat_interleave(repeats)
        g.symbols.found(size, len(known))
        return g.tensor(known)
    ends = g.emit(op.cumsum(g.tensor(repeats, "int64"), 0))
    if isinstance(size, int):
        count: Any = size
    else:
        whole = g.emit(op.max(ends, [0], keepdims=True))
        count = g.symbols.found(size)
        shape = g.emit(op.tensor_to_shape(whole))
        g.builder.match_cast(shape, relax.ShapeType([count]))
    at = g.emit(op.expand_dims(g.emit(op.arange(0, count, 1, "int64")), 1))
    behind = g.emit(op.less_equal(ends, at))
    return op.astype(g.emit(op.sum(g.emit(op.astype(behind, "int64")), [1])), g.dtype)


def slice_(
    g: Graph, x: Value, dim: int = 0, start: Value = None, end: Value = None, step: int = 1
) -> relax.Expr:
    """A slice; one that begins or ends where numbers say that are read from tensors is counted."""
    tensor = g.tensor(x)
    axis = dim % tensor.ty.ndim
    size = g.results[0].shape[axis]
    if not g.symbols.is_uncounted(size):
        return movement.slice_(g, x, dim, start, end, step)
    whole = size_tensor(g.builder, tensor.ty.shape.values[axis], "int64")
    first = _within(g, 0 if start is None else start, whole)
    behind = whole if end is None else _within(g, end, whole)
    length = g.emit(op.maximum(g.emit(op.subtract(behind, first)), g.tensor(0, "int64")))
    if step > 1:
        more = g.emit(op.add(length, g.tensor(step - 1, "int64")))
        length = g.emit(op.floor_divide(more, g.tensor(step, "int64")))
    shape = g.emit(op.tensor_to_shape(g.emit(op.reshape(length, [1]))))
    count = g.symbols.found(size)
    g.builder.match_cast(shape, relax.ShapeType([count]))
    places = g.emit(op.arange(0, count, 1, "int64"))
    if step > 1:
        places = g.emit(op.multiply(places, g.tensor(step, "int64")))
    return op.take(tensor, g.emit(op.add(places, first)), axis)


def _within(g: Graph, place: Value, whole: relax.Expr) -> relax.Expr:
    """A place of an axis of ``whole`` elements, which may be counted from the end, or be beyond."""
    if isinstance(place, int) and place >= 0:
        return g.emit(op.minimum(g.tensor(place, "int64"), whole))
    is_tensor = is_element(place)
    at = g.tensor(place, "int64") if is_tensor else size_tensor(g.builder, place, "int64")
    none = g.tensor(0, "int64")
    at = g.emit(op.where(g.emit(op.less(at, none)), g.emit(op.add(at, whole)), at))
    return g.emit(op.minimum(g.emit(op.maximum(at, none)), whole))


DATA_SIZED = {
    **dict.fromkeys(("slice.Tensor", "slice_copy.Tensor"), slice_),
    "unique_consecutive": unique_side_by_side,
    "repeat_interleave.Tensor": repeated_places,
    "nonzero": nonzero,
    "index.Tensor": index,
    "masked_select": masked_select,
    "_unique2": unique,
}
