"""Tensors of which a part is written anew."""

from __future__ import annotations

import torch
from tvm import relax

from byoc.frontends.torch.converters.beginnings import begin_of, from_start
from byoc.frontends.torch.converters.indexing import from_start as places_from_start
from byoc.frontends.torch.converters.indexing import index_put, is_element, slice_places
from byoc.frontends.torch.converters.movement import part_of
from byoc.frontends.torch.sizes import size_tensor
from byoc.frontends.torch.values import Graph, Value

op = relax.op


def slice_scatter(
    g: Graph,
    x: Value,
    src: Value,
    dim: int = 0,
    start: Value = None,
    end: Value = None,
    step: int = 1,
) -> relax.Expr:
    """``x`` with ``src`` in place of a slice."""
    tensor, source = g.tensor(x), g.tensor(src, g.dtype)
    axis = dim % tensor.ty.ndim
    extent, count = tensor.ty.shape.values[axis], source.ty.shape.values[axis]
    begin = begin_of(start, end, step, extent, count)
    if is_element(begin):
        places = slice_places(g, begin, extent, getattr(count, "value", count), step)
        return index_put(g, tensor, [*[None] * axis, places], source)
    if step == 1:
        return _replaced(g, tensor, source, axis, begin)
    known = [getattr(size, "value", None) for size in (extent, count)]
    if None in known or not isinstance(begin, int):
        places = _open_places(g, extent, count, begin, step)
    else:
        kept = torch.arange(known[0])
        kept[begin : begin + step * known[1] : step] = known[0] + torch.arange(known[1])
        places = g.tensor(kept)
    return op.take(g.emit(op.concat([tensor, source], axis)), places, axis)


def _open_places(g: Graph, extent: Value, count: Value, begin: Value, step: int) -> relax.Expr:
    """Where each element of an axis of unknown extent is in the old and the new ones together.

    Of an element ``step * n`` behind the beginning that is the ``n``-th new one, if there is such.
    """

    def number(value: Value) -> relax.Expr:
        return size_tensor(g.builder, value, "int64")

    own = g.emit(op.arange(0, extent, 1, "int64"))
    behind = g.emit(op.subtract(own, number(begin)))
    rounds = g.emit(op.floor_divide(behind, number(step)))
    is_met = g.emit(op.equal(behind, g.emit(op.multiply(rounds, number(step)))))
    for bound in (
        op.greater_equal(rounds, number(0)),
        op.less(rounds, number(count)),
    ):
        is_met = g.emit(op.logical_and(is_met, g.emit(bound)))
    return g.emit(op.where(is_met, g.emit(op.add(rounds, number(extent))), own))


def select_scatter(g: Graph, x: Value, src: Value, dim: int, index: Value) -> relax.Expr:
    """``x`` with ``src`` at one place of an axis."""
    tensor = g.tensor(x)
    axis = dim % tensor.ty.ndim
    source = g.emit(op.expand_dims(g.tensor(src, g.dtype), axis))
    extent = tensor.ty.shape.values[axis]
    if is_element(index):
        shape = [extent if i == axis else 1 for i in range(tensor.ty.ndim)]
        here = op.equal(op.arange(0, extent, 1, "int64"), places_from_start(g, index, extent))
        return op.where(op.reshape(g.emit(here), shape), source, tensor)
    return _replaced(g, tensor, source, axis, from_start(index, extent))


def _replaced(
    g: Graph, tensor: relax.Expr, source: relax.Expr, axis: int, begin: Value
) -> relax.Expr:
    extent = tensor.ty.shape.values[axis]
    end = begin + source.ty.shape.values[axis]
    before = part_of(tensor, axis, 0, begin)
    behind = part_of(tensor, axis, end, extent)
    return op.concat([g.emit(before), source, g.emit(behind)], axis)


REPLACEMENT = {"slice_scatter": slice_scatter, "select_scatter": select_scatter}
