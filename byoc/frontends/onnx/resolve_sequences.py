"""Sequences and optionals, whose lengths are known when compiling, as the tensors that they hold.

    SequenceConstruct, -Empty, -Insert, -Erase, SplitToSequence   become lists of names
    SequenceAt, OptionalGetElement                                 what they read
    SequenceLength, OptionalHasElement                             constants
    ConcatFromSequence                                             Concat
    SequenceMap                                                    its body, for each element

Positions are constants. What cannot be resolved stays, and the importer refuses it by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

from byoc.frontends.onnx.unroll import Nodes, Round

#: The place of a node that was none of its graph.
INLINED = -1

#: From this opset on the parts of Split are an input.
_SIZES_ARE_INPUTS = 13


@dataclass
class Sequences:
    """The elements of sequences by name, and the optionals that hold nothing."""

    elements: dict[str, tuple[str, ...]] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)

    def copy(self) -> Sequences:
        """What a graph inside knows."""
        return Sequences(dict(self.elements), set(self.empty))


@dataclass
class Resolver:
    """Resolves the nodes of one graph. ``constant`` and ``shape`` tell what is known of values."""

    known: Sequences
    constant: Callable[[str], np.ndarray | None]
    shape: Callable[[str], list[int | None] | None]
    write: Round

    def nodes(self, node: onnx.NodeProto) -> Nodes | None:
        """What a node becomes; None where it stays."""
        rule = _RULES.get(node.op_type)
        if rule is None or node.domain not in ("", "ai.onnx"):
            return None
        return self.write.nodes if rule(self, node) else None

    # ------------------------------------------------------------------ sequences

    def _elements(self, name: str) -> tuple[str, ...] | None:
        return self.known.elements.get(name)

    def _position(self, node: onnx.NodeProto, place: int, default: int) -> int | None:
        """A constant position, from the front."""
        if len(node.input) <= place or not node.input[place]:
            return default
        value = self.constant(node.input[place])
        return None if value is None else int(value.reshape(()))

    def construct(self, node: onnx.NodeProto) -> bool:
        """Elements as they are."""
        self.known.elements[node.output[0]] = tuple(node.input)
        return True

    def insert(self, node: onnx.NodeProto) -> bool:
        """One more, at the end or before a position."""
        elements = self._elements(node.input[0])
        if elements is None:
            return False
        at = self._position(node, 2, len(elements))
        if at is None or not -len(elements) <= at <= len(elements):
            return False
        at %= len(elements) + (at >= 0)
        changed = (*elements[:at], node.input[1], *elements[at:])
        self.known.elements[node.output[0]] = changed
        return True

    def erase(self, node: onnx.NodeProto) -> bool:
        """One less, at the end or at a position."""
        elements = self._elements(node.input[0])
        at = self._position(node, 1, -1)
        if elements is None or at is None or not -len(elements) <= at < len(elements):
            return False
        at %= len(elements)
        self.known.elements[node.output[0]] = elements[:at] + elements[at + 1 :]
        return True

    def at(self, node: onnx.NodeProto) -> bool:
        """One of them."""
        elements, at = self._elements(node.input[0]), self._position(node, 1, 0)
        if elements is None or at is None or not -len(elements) <= at < len(elements):
            return False
        self.write.passed_on(elements[at], node.output[0])
        return True

    def length(self, node: onnx.NodeProto) -> bool:
        """How many."""
        elements = self._elements(node.input[0])
        if elements is None:
            return False
        self.write.passed_on(self.write.constant(len(elements), "int64", "length"), node.output[0])
        return True

    def concat(self, node: onnx.NodeProto) -> bool:
        """All of them, along one axis or a new one."""
        elements = self._elements(node.input[0])
        attributes = {a.name: a.i for a in node.attribute}
        axis = attributes["axis"]
        if not elements:
            return False
        if not attributes.get("new_axis"):
            self.write.nodes.append(
                helper.make_node("Concat", elements, [node.output[0]], axis=axis)
            )
            return True
        if axis < 0 and self.write.opset < _SIZES_ARE_INPUTS:
            shape = self.shape(elements[0])
            if shape is None:
                return False
            axis += len(shape) + 1
        self.write.stacked(elements, axis, node.output[0])
        return True

    def split(self, node: onnx.NodeProto) -> bool:
        """Parts of one size but for the last, or of given sizes."""
        attributes = {a.name: a.i for a in node.attribute}
        shape, axis = self.shape(node.input[0]), attributes.get("axis", 0)
        given = len(node.input) > 1 and bool(node.input[1])
        wanted = self.constant(node.input[1]) if given else np.array(1)
        if shape is None or wanted is None or shape[axis] is None:
            return False
        extent = shape[axis]
        sizes = [int(size) for size in wanted.ravel()]
        if wanted.ndim == 0:
            (size,) = sizes
            if size < 1:
                return False
            sizes = [min(size, extent - begin) for begin in range(0, extent, size)]
        if sum(sizes) != extent or not sizes:
            return False
        parts = [self.write.fresh(f"{node.output[0]}_part") for _ in sizes]
        if self.write.opset < _SIZES_ARE_INPUTS:
            split = helper.make_node("Split", [node.input[0]], parts, axis=axis, split=sizes)
        else:
            sizes_of = self.write.constant(sizes, "int64", "sizes")
            split = helper.make_node("Split", [node.input[0], sizes_of], parts, axis=axis)
        self.write.nodes.append(split)
        if not given and not attributes.get("keepdims", 1):
            parts = [self._squeezed(part, axis) for part in parts]
        self.known.elements[node.output[0]] = tuple(parts)
        return True

    def _squeezed(self, value: str, axis: int) -> str:
        if self.write.opset < _SIZES_ARE_INPUTS:
            return self.write.op("Squeeze", [value], value, axes=[axis])
        return self.write.op(
            "Squeeze", [value, self.write.constant([axis], "int64", "axis")], value
        )

    def map(self, node: onnx.NodeProto) -> bool:
        """The body's results for each element; what is no sequence is the same for all."""
        body = next(a.g for a in node.attribute if a.name == "body")
        first = self._elements(node.input[0])
        if first is None:
            return False
        columns = [self._elements(name) or (name,) * len(first) for name in node.input]
        if any(len(column) != len(first) for column in columns):
            return False
        rows = [self.write.body(body, row) for row in zip(*columns, strict=True)]
        for place, output in enumerate(node.output):
            self.known.elements[output] = tuple(row[place] for row in rows)
        return True

    def identity(self, node: onnx.NodeProto) -> bool:
        """A sequence, or an optional, under another name."""
        name = node.input[0]
        if name in self.known.empty:
            self.known.empty.add(node.output[0])
        elif (elements := self._elements(name)) is not None:
            self.known.elements[node.output[0]] = elements
        else:
            return False
        return True

    # ------------------------------------------------------------------ optionals

    def optional(self, node: onnx.NodeProto) -> bool:
        """What it holds, or nothing."""
        if not node.input or not node.input[0]:
            self.known.empty.add(node.output[0])
            return True
        return self.element(node)

    def element(self, node: onnx.NodeProto) -> bool:
        """What an optional holds."""
        if node.input[0] in self.known.empty:
            return False
        if not self.identity(node):
            self.write.passed_on(node.input[0], node.output[0])
        return True

    def has_element(self, node: onnx.NodeProto) -> bool:
        """Whether an optional holds anything."""
        held = bool(node.input and node.input[0]) and node.input[0] not in self.known.empty
        self.write.passed_on(self.write.constant(held, "bool", "held"), node.output[0])
        return True


def with_sequences(
    kept: list[tuple[int, onnx.NodeProto]],
    graph: onnx.GraphProto,
    sequences: Sequences,
    renamed: dict[str, str],
) -> list[tuple[int, onnx.NodeProto]]:
    """Nodes of a graph with those that make the sequences which nodes or outputs still read."""
    made: set[str] = set()
    nodes: list[tuple[int, onnx.NodeProto]] = []

    def make(name: str) -> None:
        if name in sequences.elements and name not in made:
            made.add(name)
            elements = [renamed.get(element, element) for element in sequences.elements[name]]
            kind = "SequenceConstruct" if elements else "SequenceEmpty"
            nodes.append((INLINED, helper.make_node(kind, elements, [name])))

    for index, node in kept:
        for name in node.input:
            make(name)
        nodes.append((index, node))
    for value in graph.output:
        make(value.name)
    return nodes


_RULES: dict[str, Callable[[Resolver, onnx.NodeProto], bool]] = {
    "SequenceConstruct": Resolver.construct,
    "SequenceEmpty": Resolver.construct,
    "SequenceInsert": Resolver.insert,
    "SequenceErase": Resolver.erase,
    "SequenceAt": Resolver.at,
    "SequenceLength": Resolver.length,
    "ConcatFromSequence": Resolver.concat,
    "SplitToSequence": Resolver.split,
    "SequenceMap": Resolver.map,
    "Identity": Resolver.identity,
    "Optional": Resolver.optional,
    "OptionalGetElement": Resolver.element,
    "OptionalHasElement": Resolver.has_element,
}
