"""Names of a branch or a loop's body that a graph around it has as well.

ONNX wants each name once, in all graphs together; ONNX Runtime takes an inner graph's own input or
weight wherever that graph says the name, and exporters rely on it: Paddle's calls the states of a
loop as what they begin with.  Passes here tell values by their names alone.  A node's result of a
name that is taken is refused by ONNX Runtime too.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx

from byoc.frontends.onnx.graph_names import FreshNames, rename_reads, subgraphs


def without_shadows(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, each inner value with a name that no graph around it has.

    The model itself where there is nothing to rename, else a copy.
    """
    if not any(_shadows(inner, _own(model.graph)) for inner in _inner(model.graph)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    fresh, names = FreshNames(copy.graph), _own(copy.graph)
    for inner in _inner(copy.graph):
        _rename(inner, names, fresh)
    return copy


def _inner(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    return [inner for node in graph.node for inner in subgraphs(node)]


def _held(graph: onnx.GraphProto) -> set[str]:
    """The inputs and weights of a graph."""
    names = {value.name for value in (*graph.input, *graph.initializer)}
    return names.union(tensor.values.name for tensor in graph.sparse_initializer)


def _own(graph: onnx.GraphProto) -> set[str]:
    """What a graph gives: inputs, weights, results of nodes."""
    return _held(graph).union(*(filter(None, node.output) for node in graph.node))


def _shadows(graph: onnx.GraphProto, outer: Collection[str]) -> bool:
    known = _own(graph).union(outer)
    own = _held(graph)
    return not own.isdisjoint(outer) or any(_shadows(inner, known) for inner in _inner(graph))


def _rename(graph: onnx.GraphProto, outer: set[str], fresh: FreshNames) -> None:
    """Inner graphs first: what they say afterwards is what this graph gives, or one around it."""
    for inner in _inner(graph):
        _rename(inner, outer | _own(graph), fresh)
    names = {name: fresh.fresh(name) for name in sorted(_held(graph) & outer)}
    rename_reads(graph.node, names)
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    for value in (*values, *(tensor.values for tensor in graph.sparse_initializer)):
        value.name = names.get(value.name, value.name)
