"""Views of tensors that lie elsewhere in memory once a program is taken apart.

PyTorch's tracer does not note ``contiguous()`` of what is dense already, as attention of heads
that lie behind the rows: ``attention(...).transpose(1, 2).contiguous().view(b, n, -1)`` is noted
without it. Attention that is kept whole gives its heads before the rows, and no view goes then
over both. Here memory has no order, and such a view is as good a copy.

Of operators that PyTorch takes apart, results may be views of what it computes within, as those of
``einsum`` are. Where such a result is written (``masked_fill_``), PyTorch writes what it is a view
of, whose order in memory it does not keep. A copy of the result, which nobody else sees, is written
as well.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator

import torch
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from byoc.frontends.torch.nodes import graphs_inside

_aten = torch.ops.aten


def with_copies(
    program: torch.export.ExportedProgram, take_apart: Callable[[], torch.export.ExportedProgram]
) -> torch.export.ExportedProgram:
    """What ``take_apart`` makes of the program; where there is no such view, it may be a copy of
    what nothing writes, and results are copied before they are written."""
    try:
        return take_apart()
    except Exception as error:
        if "Cannot view a tensor" not in str(error):
            raise
    views, copies = [], []
    for graph in graphs_inside(program.graph_module):
        owner, written = _memory(graph)
        for node in list(graph.nodes):
            if node.target is _aten.view.default and owner[node] not in written:
                views.append(node)
            elif node in written and _is_taken_apart(node) and _is_its_own(node):
                copies.append(_copied(graph, node))
    for node in views:
        node.target = _aten.reshape.default
    try:
        return take_apart()
    finally:
        for node in views:
            node.target = _aten.view.default
        for node in copies:
            node.replace_all_uses_with(node.args[0])
            node.graph.erase_node(node)


def _is_taken_apart(node: torch.fx.Node) -> bool:
    target = node.target
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return isinstance(target, torch._ops.OpOverload) and target.has_kernel_for_dispatch_key(
        composite
    )


def _is_its_own(node: torch.fx.Node) -> bool:
    """Whether an operator's result is no view of its operands, as ``einsum`` of one may be."""
    if not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    args, kwargs = map_arg((node.args, node.kwargs), lambda given: given.meta["val"])
    given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    memory = {tensor.untyped_storage()._cdata for tensor in given}
    return node.target(*args, **kwargs).untyped_storage()._cdata not in memory


def _copied(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node:
    with graph.inserting_after(node):
        copy = graph.call_function(_aten.clone.default)
    copy.meta = dict(node.meta)
    node.replace_all_uses_with(copy)
    copy.args = (node,)
    copy.kwargs = {"memory_format": torch.contiguous_format}
    return copy


def _memory(
    graph: torch.fx.Graph,
) -> tuple[dict[torch.fx.Node, torch.fx.Node], set[torch.fx.Node]]:
    """The node that each has its memory from, and those whose memory a node of the graph writes,
    under whatever name."""
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
    return owner, written


def _aliases(
    schema: torch._C.FunctionSchema, node: torch.fx.Node
) -> Iterator[tuple[torch.fx.Node, torch._C._AliasInfo]]:
    """The tensors whose memory a node's result is, or that it writes."""
    for place, said in enumerate(schema.arguments):
        given = node.args[place] if place < len(node.args) else node.kwargs.get(said.name)
        for tensor in given if isinstance(given, list | tuple) else [given]:
            if isinstance(tensor, torch.fx.Node) and said.alias_info is not None:
                yield tensor, said.alias_info
