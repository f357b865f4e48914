"""The names in an ONNX graph, with those of the graphs inside it.

A branch or a loop body reads values of the graph around it by name alone: they are no inputs of the
``If`` or ``Loop``. So whoever counts readers, removes values or invents names has to look inside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import onnx

from byoc.frontends.free_names import take_name


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among a node's attributes, not those inside of them."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and all graphs inside it, outer ones first."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from all_graphs(inner)


def reads(graph: onnx.GraphProto) -> Counter[str]:
    """How often each name is read: by nodes at any depth, or as the output of a graph."""
    counts: Counter[str] = Counter()
    for part in all_graphs(graph):
        for node in part.node:
            counts.update(node.input)
        counts.update(value.name for value in part.output)
    return counts


def reads_of(node: onnx.NodeProto) -> set[str]:
    """The names that a node and the graphs inside it read."""
    return set(node.input).union(*(reads(inner) for inner in subgraphs(node)))


def definitions(graph: onnx.GraphProto) -> Counter[str]:
    """In how many graphs at any depth each name is an input, an initializer or a node's output."""
    counts: Counter[str] = Counter()
    for part in all_graphs(graph):
        names = {value.name for value in (*part.input, *part.initializer)}
        counts.update(names.union(*(node.output for node in part.node)))
    return counts


def rename_reads(nodes: Iterable[onnx.NodeProto], names: dict[str, str]) -> None:
    """Let nodes, and the graphs inside them, read other values, in place."""
    if not names:
        return
    for node in nodes:
        if any(name in names for name in node.input):
            node.input[:] = [names.get(name, name) for name in node.input]
        for inner in subgraphs(node):
            rename_reads(inner.node, names)
            for value in inner.output:
                value.name = names.get(value.name, value.name)


def known_as(node: onnx.NodeProto) -> str:
    """What a node is called in origins and reports: its name, or that of its first result."""
    return node.name or node.output[0]


def makers(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    """The node of a graph that gives each value."""
    return {name: node for node in graph.node for name in node.output if name}


def replace_nodes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Give a graph these nodes, some of which may be its own, in place."""
    copies = onnx.GraphProto(node=nodes)
    del graph.node[:]
    graph.node.extend(copies.node)


def nodes_by_name(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    """The nodes of a graph by what they are called, those that no other node is called alike."""
    counts = Counter(map(known_as, graph.node))
    return {known_as(node): node for node in graph.node if counts[known_as(node)] == 1}


class FreshNames:
    """Invents names that no value of a graph, at any depth, has."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._taken: set[str] = set()
        for part in all_graphs(graph):
            values = (*part.input, *part.output, *part.value_info, *part.initializer)
            self._taken.update(value.name for value in values)
            self._taken.update(tensor.values.name for tensor in part.sparse_initializer)
            for node in part.node:
                self._taken.update((*node.input, *node.output))

    def fresh(self, wanted: str) -> str:
        """``wanted``, or with a number behind it if there is such a name."""
        return take_name(wanted, self._taken)


def tensors_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Initializers and attributes of a graph that are dense tensors, not of those inside it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def all_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The tensors of a graph and of all graphs inside it."""
    for part in all_graphs(graph):
        yield from tensors_of(part)
