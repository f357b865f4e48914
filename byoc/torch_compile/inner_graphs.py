"""Graphs inside of a graph of ``torch.compile`` that are computed as they stand."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch

#: Operators that compute a graph as it stands, and how many of their first arguments are the graph
#: and what is said of it. They say what the backward pass does, and where a graph is reused.
_AS_IT_STANDS = {"tag_activation_checkpoint": 1, "wrap_activation_checkpoint": 1, "wrap": 1}
_AS_IT_STANDS |= {"invoke_subgraph": 2}


def written_out(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph with such inner graphs in place of the operators that compute them; the same where
    there is none, or where gradients are recorded."""
    if torch.is_grad_enabled() or not any(map(_is_one, graph.graph.nodes)):
        return graph
    made = torch.fx.Graph()
    attributes: dict[str, Any] = {}
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    copies = {node: made.node_copy(node) for node in inputs}
    results, meta = _write(graph, copies, made, attributes)
    made.output(results).meta = meta
    return torch.fx.GraphModule(attributes, made)


def _is_one(node: torch.fx.Node) -> bool:
    is_operator = isinstance(node.target, torch._ops.HigherOrderOperator)
    return is_operator and node.target.name() in _AS_IT_STANDS


def _write(
    module: torch.fx.GraphModule,
    known: dict[torch.fx.Node, Any],
    made: torch.fx.Graph,
    attributes: dict[str, Any],
) -> tuple[Any, dict[str, Any]]:
    """Write a graph whose inputs are ``known``; gives its results, and what is noted of these."""
    for node in module.graph.nodes:
        if node.op == "output":
            return torch.fx.node.map_arg(node.args[0], known.__getitem__), node.meta
        if node in known:
            continue
        if _is_one(node):
            known[node] = _inside(module, node, known, made, attributes)
        elif node.target is operator.getitem and isinstance(known[node.args[0]], Sequence):
            known[node] = known[node.args[0]][node.args[1]]
        elif node.op == "get_attr":
            if not any(map(_is_one, node.users)):
                known[node] = _attribute(module, node, made, attributes)
        else:
            known[node] = made.node_copy(node, known.__getitem__)
    raise AssertionError("a graph without an output")


def _inside(
    module: torch.fx.GraphModule,
    node: torch.fx.Node,
    known: dict[torch.fx.Node, Any],
    made: torch.fx.Graph,
    attributes: dict[str, Any],
) -> Any:
    """The results of a node that computes a graph as it stands."""
    inner = attrgetter(node.args[0].target)(module)
    values = node.args[_AS_IT_STANDS[node.target.name()] :]
    given = torch.fx.node.map_arg(values, known.__getitem__)
    inputs = (n for n in inner.graph.nodes if n.op == "placeholder")
    results, _ = _write(inner, dict(zip(inputs, given, strict=True)), made, attributes)
    return results


def _attribute(
    module: torch.fx.GraphModule,
    node: torch.fx.Node,
    made: torch.fx.Graph,
    attributes: dict[str, Any],
) -> torch.fx.Node:
    """A tensor, or another graph, under a name that is free."""
    name = str(node.target).replace(".", "_")
    value = attrgetter(node.target)(module)
    while attributes.get(name, value) is not value:
        name += "_"
    attributes[name] = value
    copy = made.get_attr(name)
    copy.meta = dict(node.meta)
    return copy
