"""Numbers that a program reads from tensors, as ``x.item()``: sizes, or elements."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch.utils._sympy import functions
from tvm import relax

from byoc.frontends.torch.sizes import element_tensor
from byoc.frontends.torch.values import Graph, Value

#: The least number that a size may be counted from: labels of nothing are -1.
_LEAST = -16


def read_number(g: Graph, node: torch.fx.Node, value: Value, bounds: Any) -> None:
    """Give the symbol of a number that a node reads from a tensor a value. Whole numbers that are
    ``bounds`` to a least one are sizes, as ``labels.max().item() + 1`` is, which are counted from
    there; another one stays an element, which only computes with tensors, but for ``max(n, 0)``."""
    size = node.meta["val"]
    if node.target is torch.sym_max:
        _read_greater(g, node, size)
        return
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
    _count(g, whole, g.symbols.found(size, least=least))


def _read_greater(g: Graph, node: torch.fx.Node, size: Any) -> None:
    """Give ``max(n, 0)`` of a number that is no size, and stands in shapes, a value: it is one."""
    expr = size.node.expr
    is_least = expr.func in (sympy.Max, functions.Max) and sympy.S.Zero in expr.args
    if is_least and any(_has(other, expr) for other in node.graph.nodes):
        whole = element_tensor(g.builder, g.symbols, size)
        if whole is not None:
            _count(g, whole, g.symbols.counted(expr))


def _has(node: torch.fx.Node, expr: sympy.Basic) -> bool:
    """Whether a result of a node has an extent that is computed from a number."""
    found = node.meta.get("val")
    results = found if isinstance(found, list | tuple) else [found]
    shapes = [result.shape for result in results if isinstance(result, torch.Tensor)]
    return any(not isinstance(n, int) and n.node.expr.has(expr) for shape in shapes for n in shape)


def _count(g: Graph, whole: relax.Expr, extent: Any) -> None:
    shape = g.emit(relax.op.tensor_to_shape(g.emit(relax.op.reshape(whole, [1]))))
    g.builder.match_cast(shape, relax.ShapeType([extent]))
