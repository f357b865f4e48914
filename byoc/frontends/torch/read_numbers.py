"""Numbers that a program reads from tensors, as ``x.item()``: sizes, or elements."""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax

from byoc.frontends.torch.values import Graph, Value

#: The least number that a size may be counted from: labels of nothing are -1.
_LEAST = -16


def read_number(g: Graph, value: Value, size: Any, bounds: Any) -> None:
    """Give the symbol of a number a value. Whole numbers that are ``bounds`` to a least one are
    sizes, as ``labels.max().item() + 1`` is, which are counted from there; another one stays an
    element, which only computes with tensors."""
    if not isinstance(size, torch.SymInt) or bounds is None or bounds.lower < _LEAST:
        g.symbols.elements[size.node.expr] = g.emit(relax.op.reshape(g.tensor(value), []))
        return
    least = min(int(bounds.lower), 0)
    if isinstance(value, torch.Tensor):
        g.symbols.found(size, int(value))
        return
    whole = g.tensor(value, "int64")
    if least:
        whole = g.emit(relax.op.subtract(whole, g.tensor(least, "int64")))
    shape = g.emit(relax.op.tensor_to_shape(g.emit(relax.op.reshape(whole, [1]))))
    g.builder.match_cast(shape, relax.ShapeType([g.symbols.found(size, least=least)]))
