"""Views of tensors that lie elsewhere in memory once a program is taken apart.

PyTorch's tracer does not note ``contiguous()`` of what is dense already, as attention of heads
that lie behind the rows: ``attention(...).transpose(1, 2).contiguous().view(b, n, -1)`` is noted
without it. Attention that is kept whole gives its heads before the rows, and no view goes then
over both. Here memory has no order, and such a view is as good a copy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator

import torch

from byoc.frontends.torch.nodes import graphs_inside

_aten = torch.ops.aten


def with_copies(
    program: torch.export.ExportedProgram, take_apart: Callable[[], torch.export.ExportedProgram]
) -> torch.export.ExportedProgram:
    """What ``take_apart`` makes of the program; where there is no such view, it may be a copy of
    what nothing writes."""
    try:
        return take_apart()
    except Exception as error:
        if "Cannot view a tensor" not in str(error):
            raise
    views = [
        node
        for graph in graphs_inside(program.graph_module)
        for node in _unwritten(graph)
        if node.target is _aten.view.default
    ]
    for node in views:
        node.target = _aten.reshape.default
    try:
        return take_apart()
    finally:
        for node in views:
            node.target = _aten.view.default


def _unwritten(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The nodes whose memory no node of the graph writes, under whatever name."""
    owner: dict[torch.fx.Node, torch.fx.Node] = {}
    written: set[torch.fx.Node] = set()
    for node in graph.nodes:
        owner[node] = node
        if node.target is operator.getitem:
            owner[node] = owner[node.all_input_nodes[0]]
        elif (schema := getattr(node.target, "_schema", None)) is not None:
            for given, alias in _aliases(schema, node):
                owner[node] = owner[given]
                if alias.is_write:
                    written.add(owner[given])
        elif node.op != "output":
            # What branches and loops do to their operands is not told.
            written |= {owner[given] for given in node.all_input_nodes}
    return [node for node in graph.nodes if owner[node] not in written]


def _aliases(
    schema: torch._C.FunctionSchema, node: torch.fx.Node
) -> Iterator[tuple[torch.fx.Node, torch._C._AliasInfo]]:
    """The tensors whose memory a node's result is, or that it writes."""
    for place, said in enumerate(schema.arguments):
        given = node.args[place] if place < len(node.args) else node.kwargs.get(said.name)
        for tensor in given if isinstance(given, list | tuple) else [given]:
            if isinstance(tensor, torch.fx.Node) and said.alias_info is not None:
                yield tensor, said.alias_info
