"""Elements that a mask picks and that go where they stood, ``x[mask] = y[mask]``.

Nobody has to count them: each element of the result is that of ``y`` or of ``x``.
"""

from __future__ import annotations

import torch

from byoc.frontends.torch.nodes import graphs_inside

_PUTS = (torch.ops.aten.index_put.default, torch.ops.aten._unsafe_index_put.default)
_PICKS = (torch.ops.aten.index.Tensor, torch.ops.aten._unsafe_index.Tensor)


def chosen_in_place(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Write a choice between two tensors for such copies; the program's graphs are changed."""
    for graph in graphs_inside(program.graph_module):
        _choose(graph)
    return program


def _choose(graph: torch.fx.Graph) -> None:
    for node in list(graph.nodes):
        found = _masked_copy(node)
        if found is None:
            continue
        into, mask, source = found
        with graph.inserting_before(node):
            for _ in range(into.meta["val"].dim() - mask.meta["val"].dim()):
                wide = graph.call_function(torch.ops.aten.unsqueeze.default, (mask, -1))
                wide.meta = {**node.meta, "val": mask.meta["val"].unsqueeze(-1)}
                mask = wide
            made = graph.call_function(torch.ops.aten.where.self, (mask, source, into))
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        picked = node.args[2]
        graph.erase_node(node)
        if not picked.users:
            graph.erase_node(picked)


def _masked_copy(node: torch.fx.Node) -> tuple[torch.fx.Node, torch.fx.Node, torch.fx.Node] | None:
    """What is written into, the mask, and where the elements come from."""
    if node.target not in _PUTS or len(node.args) > 3 or node.kwargs:
        return None
    into, places, values = node.args
    if getattr(values, "target", None) not in _PICKS or len(places) != 1:
        return None
    source, picked = values.args
    (mask,) = places
    if list(picked) != [mask] or mask.meta["val"].dtype != torch.bool:
        return None
    both = [tensor.meta["val"] for tensor in (into, source)]
    alike = both[0].shape == both[1].shape and both[0].dtype == both[1].dtype
    return (into, mask, source) if alike else None
