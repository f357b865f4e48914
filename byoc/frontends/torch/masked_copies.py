"""Elements that a mask picks and that go where they stood, ``x[mask] = 2 * y[mask] + 1``.

Nobody has to count them: each element of the result is that of ``2 * y + 1`` or of ``x``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.node import map_arg

from byoc.frontends.torch.nodes import graphs_inside, is_of_each, is_random

_PUTS = (torch.ops.aten.index_put.default, torch.ops.aten._unsafe_index_put.default)
_PICKS = (torch.ops.aten.index.Tensor, torch.ops.aten._unsafe_index.Tensor)

#: How far masks are looked at that may be one.
_DEPTH = 8


def chosen_in_place(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Write a choice between two tensors for such copies; the program's graphs are changed."""
    for graph in graphs_inside(program.graph_module):
        for node in list(graph.nodes):
            if node.target in _PUTS and len(node.args) == 3 and not node.kwargs:
                _choose(graph, node)
    return program


def _choose(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    into, places, values = node.args
    if len(places) != 1 or not isinstance(values, torch.fx.Node):
        return
    (mask,) = places
    if mask.meta["val"].dtype != torch.bool or not _stays(values, into, mask):
        return
    with graph.inserting_before(node):
        beside = _rank(into) - _rank(mask)
        source = _of_all(graph, values, beside)
        for _ in range(beside):
            mask = _called(graph, node, torch.ops.aten.unsqueeze.default, (mask, -1))
        made = graph.call_function(torch.ops.aten.where.self, (mask, source, into))
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    _erase_unused(graph, values)


def _stays(values: torch.fx.Node, into: torch.fx.Node, mask: torch.fx.Node) -> bool:
    """Whether values are picked by the mask from tensors like ``into``, or computed of such
    elements one by one. Of whole numbers that were not picked, a quotient may be none."""
    wanted = into.meta["val"]
    if values.target in _PICKS:
        source, picked = values.args
        value = source.meta["val"]
        alike = value.shape == wanted.shape and value.dtype == wanted.dtype
        return alike and len(picked) == 1 and picked[0] is not None and _same(picked[0], mask)
    beside = _rank(into) - _rank(mask)
    picked = [given for given in values.all_input_nodes if _is_of_rows(given, beside)]
    return (
        bool(picked)
        and is_of_each(values)
        and not is_random(values)
        and wanted.is_floating_point()
        and values.meta["val"].dtype == wanted.dtype
        and all(_stays(given, into, mask) for given in picked)
    )


def _rank(node: torch.fx.Node) -> int:
    value = node.meta.get("val")
    return value.dim() if isinstance(value, torch.Tensor) else 0


def _is_of_rows(node: torch.fx.Node, beside: int) -> bool:
    """Whether a value has a row for each element that a mask picks, and not one for all."""
    return _rank(node) > beside and not (_rank(node) == beside + 1 and _is_one_row(node))


def _is_one_row(node: torch.fx.Node) -> bool:
    extent = node.meta["val"].shape[0]
    return isinstance(extent, int) and extent == 1


def _same(a: Any, b: Any, depth: int = _DEPTH) -> bool:
    """Whether two nodes of a graph that writes nothing give the same, as they are written alike."""
    if not (isinstance(a, torch.fx.Node) and isinstance(b, torch.fx.Node)):
        return type(a) is type(b) and bool(a == b)
    if a is b:
        return True
    alike = a.op == b.op == "call_function" and a.target is b.target and a.kwargs == b.kwargs
    return (
        alike
        and depth > 0
        and not is_random(a)
        and len(a.args) == len(b.args)
        and all(_same(x, y, depth - 1) for x, y in zip(a.args, b.args, strict=True))
    )


def _of_all(graph: torch.fx.Graph, values: torch.fx.Node, beside: int) -> torch.fx.Node:
    """What values are where all elements are taken, and not those of a mask; what has no more axes
    than there are ``beside`` the mask's, or one row more, was never picked."""
    if values.target in _PICKS:
        return values.args[0]

    def whole(given: torch.fx.Node) -> torch.fx.Node:
        if _is_of_rows(given, beside):
            return _of_all(graph, given, beside)
        if _rank(given) <= beside:
            return given
        return _called(graph, given, torch.ops.aten.squeeze.dim, (given, 0))

    args, kwargs = map_arg((values.args, values.kwargs), whole)
    return _called(graph, values, values.target, args, kwargs)


def _called(
    graph: torch.fx.Graph,
    origin: torch.fx.Node,
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
) -> torch.fx.Node:
    """A call with the shape of its result, which stands for a part of another."""
    made = graph.call_function(target, args, kwargs)
    given, named = map_arg((args, kwargs or {}), lambda node: node.meta["val"])
    made.meta = {**origin.meta, "val": target(*given, **named)}
    return made


def _erase_unused(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    if not node.users and (node.target in _PICKS or is_of_each(node)):
        before = node.all_input_nodes
        graph.erase_node(node)
        for given in before:
            _erase_unused(graph, given)
