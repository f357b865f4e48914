"""Weights that a graph has as attributes, as ``torch._inductor.config.freezing`` leaves them.

They become inputs that do not change, as parameters are elsewhere.
"""

from __future__ import annotations

from operator import attrgetter

import torch

from byoc.torch_compile.capture import freeze


def weights_as_inputs(
    graph: torch.fx.GraphModule,
) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    """The graph with inputs behind its own in place of parameters and buffers, and these."""
    own = {name for name, _ in (*graph.named_parameters(), *graph.named_buffers())}
    found = [n for n in graph.graph.nodes if n.op == "get_attr" and n.target in own]
    if not found:
        return graph, []
    made = torch.fx.Graph()
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    copies = {node: made.node_copy(node) for node in inputs}
    weights: dict[str, torch.fx.Node] = {}
    for node in found:
        if node.target not in weights:
            weights[node.target] = made.placeholder(f"weight_{len(weights)}")
            weights[node.target].meta = {**node.meta}
            freeze(weights[node.target])
        copies[node] = weights[node.target]
    for node in graph.graph.nodes:
        if node not in copies:
            copies[node] = made.node_copy(node, copies.__getitem__)
    tensors = [attrgetter(name)(graph) for name in weights]
    return torch.fx.GraphModule(graph, made), tensors
