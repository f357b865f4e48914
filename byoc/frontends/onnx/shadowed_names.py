"""Names of a branch or a loop's body that a graph around it has as well.

ONNX wants each name once, in all graphs together; ONNX Runtime takes an inner graph's own input or
weight wherever that graph says the name, and exporters rely on it: Paddle's calls the states of a
loop as what they begin with.  A result of an inner node may have a name that the graph around gives
later, by the node that holds the inner graph or one behind it: nothing inside can mean that value.
Optimum's decoders, merged of a prompt's and a step's, call results of branches as the ``If``'s.
Passes here tell values by their names alone.  A result of a name that is taken before is refused by
ONNX Runtime too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx

from byoc.frontends.onnx.graph_names import FreshNames, rename_reads, subgraphs


def without_shadows(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, each inner value with a name that no graph around it has.

    The model itself where there is nothing to rename, else a copy.
    """
    own = _own(model.graph)
    if not any(_shadows(inner, own, later) for inner, later in _inner(model.graph)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    fresh, names = FreshNames(copy.graph), _own(copy.graph)
    for inner, later in _inner(copy.graph):
        _rename(inner, names, later, fresh)
    return copy


def _inner(graph: onnx.GraphProto) -> Iterator[tuple[onnx.GraphProto, set[str]]]:
    """The graphs inside, each with what the graph gives from the node on that holds it."""
    if not any(True for node in graph.node for _ in subgraphs(node)):
        return
    later = _results(graph)
    for node in graph.node:
        for inner in subgraphs(node):
            yield inner, set(later)
        later.difference_update(node.output)


def _held(graph: onnx.GraphProto) -> set[str]:
    """The inputs and weights of a graph."""
    names = {value.name for value in (*graph.input, *graph.initializer)}
    return names.union(tensor.values.name for tensor in graph.sparse_initializer)


def _results(graph: onnx.GraphProto) -> set[str]:
    return set().union(*(filter(None, node.output) for node in graph.node))


def _own(graph: onnx.GraphProto) -> set[str]:
    """What a graph gives: inputs, weights, results of nodes."""
    return _held(graph) | _results(graph)


def _free(graph: onnx.GraphProto, outer: Collection[str], later: Collection[str]) -> set[str]:
    """Names that a graph gives while the graphs around it mean, or come to mean, others by them."""
    return (_held(graph) & set(outer)) | (_results(graph) & set(later))


def _shadows(graph: onnx.GraphProto, outer: set[str], later: set[str]) -> bool:
    known = outer | _own(graph)
    return bool(_free(graph, outer, later)) or any(
        _shadows(inner, known, later | behind) for inner, behind in _inner(graph)
    )


def _rename(graph: onnx.GraphProto, outer: set[str], later: set[str], fresh: FreshNames) -> None:
    """Inner graphs first: what they say afterwards is what this graph gives, or one around it."""
    for inner, behind in _inner(graph):
        _rename(inner, outer | _own(graph), later | behind, fresh)
    names = {name: fresh.fresh(name) for name in sorted(_free(graph, outer, later))}
    rename_reads(graph.node, names)
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    for value in (*values, *(tensor.values for tensor in graph.sparse_initializer)):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        node.output[:] = [names.get(name, name) for name in node.output]
