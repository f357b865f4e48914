"""Bags of rows of a table, reduced to one row each."""

from __future__ import annotations

import torch
from tvm import relax

from byoc.frontends.torch.converters.indexing import embedding
from byoc.frontends.torch.converters.movement import part_of
from byoc.frontends.torch.values import Graph, Value
from byoc.ir.dataflow import dtype_of

op = relax.op

#: What PyTorch's modes are.
_SUM, _MEAN, _GREATEST = range(3)


def embedding_bag(
    g: Graph,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> list[relax.Expr | None]:
    """Sums, means or greatest elements of bags of rows, which begin at ``offsets``.

    Rows of the number ``padding_idx`` do not count; a bag of none is 0.
    """
    taken = g.emit(embedding(g, weight, indices))
    if per_sample_weights is not None:
        factors = g.emit(op.expand_dims(g.tensor(per_sample_weights), 1))
        taken = g.emit(op.multiply(taken, factors))
    sizes = _sizes(taken, offsets, include_last_offset) if padding_idx < 0 else []
    if len(set(sizes)) == 1 and sizes[0]:
        reduction = {_SUM: op.sum, _MEAN: op.mean, _GREATEST: op.max}[mode]
        parts = op.reshape(taken, [len(sizes), sizes[0], taken.ty.shape.values[1]])
        return [reduction(g.emit(parts), [1]), None, None, None]
    counted = None
    if padding_idx >= 0:
        rows = g.tensor(indices)
        counted = g.emit(op.not_equal(rows, g.tensor(padding_idx, dtype_of(rows))))
    bags = _bags(g, taken.ty.shape.values[0], g.tensor(offsets))
    return [_reduced(g, taken, bags, counted, mode), None, None, None]


def _sizes(taken: relax.Expr, offsets: Value, include_last_offset: bool) -> list[int]:
    """How many rows each bag has; empty where that is not known, or some rows are in none."""
    rows = getattr(taken.ty.shape.values[0], "value", None)
    if not isinstance(offsets, torch.Tensor) or rows is None:
        return []
    begins = offsets.tolist()
    ends = begins[1:] if include_last_offset else [*begins[1:], rows]
    sizes = [end - begin for begin, end in zip(begins, ends, strict=False)]
    return sizes if sum(sizes) == rows else []


def _bags(g: Graph, rows: object, offsets: relax.Expr) -> relax.Expr:
    """The number of the bag that each row is in, [rows, 1]: how many begin there or before, but 1.

    Several begin at one row where all but the last are empty, and may begin behind the last row.
    """
    count, dtype = offsets.ty.shape.values[0], "int64"
    none = g.emit(op.broadcast_to(g.tensor(0, dtype), [rows + 1]))
    ones = g.emit(op.broadcast_to(g.tensor(1, dtype), [count]))
    places = g.emit(op.expand_dims(g.tensor(offsets, dtype), 1))
    begun = g.emit(op.cumsum(g.emit(op.scatter_nd(none, places, ones, "add")), 0))
    bags = op.subtract(g.emit(part_of(begun, 0, 0, rows)), g.tensor(1, dtype))
    return g.emit(op.expand_dims(g.emit(bags), 1))


def _reduced(
    g: Graph, taken: relax.Expr, bags: relax.Expr, counted: relax.Expr | None, mode: int
) -> relax.Expr:
    """Rows that count, reduced in their bags."""
    dtype, (count, width) = g.dtype, g.shape
    begin = g.tensor(float("-inf") if mode == _GREATEST else 0.0, dtype)
    ones = g.emit(op.broadcast_to(g.tensor(1.0, dtype), [taken.ty.shape.values[0]]))
    if counted is not None:
        ones = g.emit(op.astype(counted, dtype))
        taken = g.emit(op.where(g.emit(op.expand_dims(counted, 1)), taken, begin))

    def met(begin: relax.Expr, parts: relax.Expr, shape: list[object], way: str) -> relax.Expr:
        # One bag more, for rows behind the last bag.
        whole = g.emit(op.broadcast_to(begin, [count + 1, *shape]))
        made = g.emit(op.scatter_nd(whole, bags, parts, way))
        return g.emit(part_of(made, 0, 0, count))

    made = met(begin, taken, [width], "max" if mode == _GREATEST else "add")
    if mode == _SUM:
        return made
    found = g.emit(op.expand_dims(met(g.tensor(0.0, dtype), ones, [], "add"), 1))
    if mode == _MEAN:
        return op.divide(made, g.emit(op.maximum(found, g.tensor(1.0, dtype))))
    is_any = g.emit(op.greater(found, g.tensor(0.0, dtype)))
    return op.where(is_any, made, g.tensor(0.0, dtype))


BAGS = dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), embedding_bag)
