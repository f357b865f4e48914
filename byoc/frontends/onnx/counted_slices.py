"""What a Loop reads by the number of its round, as elements instead of slices.

    Loop over i = 0, 1, ... while i < Size(offsets) {
        begin = Slice(joined, [i], [i + 1])            begin = Gather(joined, [i])
        end = Slice(joined, [i + 1], [i + 2])          end = Gather(joined, [i + 1])
    }
    joined = Concat(offsets, Shape(indices))

A slice may have no element, so that its length is not known; these are inside, and have one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from byoc.frontends.onnx.graph_names import all_graphs


def index_by_rounds(graph: onnx.GraphProto) -> None:
    """Let loops over the elements of a list read them one by one, in place."""
    for part in all_graphs(graph):
        outside = _Known.of([part])
        for node in part.node:
            if node.op_type == "Loop":
                _index(node, outside)


def _index(loop: onnx.NodeProto, outside: _Known) -> None:
    body = next(a.g for a in loop.attribute if a.name == "body")
    inside = _Known({**outside.made, **_Known.of([body]).made})
    for place, state in enumerate(body.input[2:]):
        source = _counted_over(loop, body, place, outside, inside)
        if source is None:
            continue
        for node in body.node:
            first = _read_at(node, state.name, inside)
            if first is not None and first <= _beyond(node.input[0], source, outside):
                element = helper.make_node("Gather", node.input[:2], node.output, axis=0)
                node.CopyFrom(element)


@dataclass(frozen=True)
class _Known:
    """What makes the values of graphs: nodes, or tensors that they hold."""

    made: dict[str, onnx.NodeProto | onnx.TensorProto]

    @classmethod
    def of(cls, graphs: list[onnx.GraphProto]) -> _Known:
        made: dict[str, onnx.NodeProto | onnx.TensorProto] = {}
        for graph in graphs:
            made |= {tensor.name: tensor for tensor in graph.initializer}
            made |= {name: node for node in graph.node for name in node.output}
        return cls(made)

    def node(self, name: str, operator: str) -> onnx.NodeProto | None:
        """The node of an operator that makes a value."""
        found = self.made.get(name)
        is_it = isinstance(found, onnx.NodeProto) and found.op_type == operator
        return found if is_it and found.domain in ("", "ai.onnx") else None

    def number(self, name: str) -> int | None:
        """The value of a constant of one element, whatever integer it is cast to."""
        found = self.made.get(name)
        if isinstance(found, onnx.NodeProto):
            if found.op_type in ("Cast", "CastLike", "Identity"):
                return self.number(found.input[0])
            found = next((a.t for a in found.attribute if a.name == "value"), None)
        if found is None or found.data_type != onnx.TensorProto.INT64 or np.prod(found.dims) != 1:
            return None
        return int(numpy_helper.to_array(found).reshape(()))

    def same_plus(self, name: str, base: str) -> int | None:
        """How much more than a value another one is."""
        if name == base:
            return 0
        total = self.node(name, "Add")
        if total is None:
            return None
        rest = [self.number(other) for other in total.input if other != base]
        return rest[0] if len(rest) == 1 else None


def _counted_over(
    loop: onnx.NodeProto, body: onnx.GraphProto, place: int, outside: _Known, inside: _Known
) -> str | None:
    """The list whose elements a state counts, from 0 on; None for other states."""
    begin, state = loop.input[place + 2], body.input[place + 2].name
    following = body.output[place + 1].name
    if outside.number(begin) != 0 or inside.same_plus(following, state) != 1:
        return None
    first, again = outside.node(loop.input[1], "Less"), inside.node(body.output[0].name, "Less")
    if first is None or again is None or first.input[0] != begin or again.input[0] != following:
        return None
    size = outside.node(first.input[1], "Size")
    return size.input[0] if size is not None and again.input[1] == first.input[1] else None


def _read_at(node: onnx.NodeProto, state: str, inside: _Known) -> int | None:
    """How far behind a state the only element of a slice is."""
    if node.op_type != "Slice" or node.domain or len(node.input) != 3:
        return None
    base, total = inside.node(node.input[1], "Reshape"), inside.node(node.input[1], "Add")
    if base is None and total is not None:
        found = (inside.node(operand, "Reshape") for operand in total.input)
        base = next(filter(None, found), None)
    if base is None or base.input[0] != state or inside.number(base.input[1]) != -1:
        return None
    first, last = (inside.same_plus(bound, base.output[0]) for bound in node.input[1:3])
    if first is None or last is None:
        return None
    return first if last == first + 1 and first >= 0 else None


def _beyond(name: str, source: str, outside: _Known) -> int:
    """How many elements a list has at least behind those of another one; -1 for other lists."""
    if name == source:
        return 0
    joined = outside.node(name, "Concat")
    if joined is None or joined.input[0] != source:
        return -1
    shapes = [outside.node(part, "Shape") for part in joined.input[1:]]
    lines = [outside.node(shape.input[0], "Reshape") for shape in shapes if shape is not None]
    return sum(line is not None and outside.number(line.input[1]) is not None for line in lines)
