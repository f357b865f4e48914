"""Tensors that a graph reads and that nothing gives: the model is damaged."""

from __future__ import annotations

from collections.abc import Iterator, Set

import onnx

from byoc.errors import ModelError


def require_defined(model: onnx.ModelProto) -> None:
    """Raise ``ModelError`` where a node, or the graph as output, names a tensor that is nowhere.

    The order of the nodes does not matter here.
    """
    _check(model.graph, frozenset())


def _check(graph: onnx.GraphProto, outer: Set[str]) -> None:
    known = outer | set(_given(graph))
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                who = repr(node.name) if node.name else f"with output {', '.join(node.output)!r}"
                raise ModelError(
                    f"operator {node.op_type} (node {who}) reads the tensor {name!r}, which no "
                    "input, weight or node of the model gives; the model is damaged, export it "
                    "again"
                )
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                _check(body, known)
    for value in graph.output:
        if value.name not in known:
            raise ModelError(
                f"output {value.name!r} is given by no input, weight or node of the model; the "
                "model is damaged, export it again"
            )


def _given(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (tensor.values.name for tensor in graph.sparse_initializer)
    yield from (name for node in graph.node for name in node.output)
