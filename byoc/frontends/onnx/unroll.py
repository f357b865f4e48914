"""Loops whose rounds are known, written out: Loop of a constant count, Scan over a known extent.

A body becomes the nodes of its rounds, in which folding sees the number of the round as a constant.
Of Loop, the count and the first condition are constants, and the body hands its condition on or
makes it a constant. Slices of Scan's inputs are gathered, what its rounds give is joined. Longer
loops stay, and become functions that call themselves (``control_flow``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from byoc.frontends.onnx.graph_names import all_graphs, rename_reads

#: Most rounds, and nodes of all of them, that are written out.
MAX_ROUNDS, MAX_NODES = 128, 2048

#: From this opset on axes are an input.
_AXES_ARE_INPUTS = 13
#: Before this one Scan has a batch.
_WITHOUT_BATCH = 9

Nodes = list[onnx.NodeProto]


@dataclass
class Round:
    """Writes nodes with names that nothing else has, in an opset."""

    fresh: Callable[[str], str]
    opset: int
    nodes: Nodes = field(default_factory=list)

    def op(self, operator: str, inputs: Sequence[str], name: str, **attributes: object) -> str:
        """Add a node with one result; returns the result's name, made from ``name``."""
        output = self.fresh(name)
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, value: object, dtype: str, name: str) -> str:
        """Add a constant."""
        tensor = numpy_helper.from_array(np.array(value, dtype))
        return self.op("Constant", [], name, value=tensor)

    def unsqueezed(self, value: str, axis: int) -> str:
        """A value with one more axis."""
        if self.opset < _AXES_ARE_INPUTS:
            return self.op("Unsqueeze", [value], value, axes=[axis])
        return self.op("Unsqueeze", [value, self.constant([axis], "int64", "axis")], value)

    def squeezed(self, value: str, axis: int, output: str) -> None:
        """Give ``output`` a value without an axis of extent 1."""
        if self.opset < _AXES_ARE_INPUTS:
            node = helper.make_node("Squeeze", [value], [output], axes=[axis])
        else:
            axes = self.constant([axis], "int64", "axis")
            node = helper.make_node("Squeeze", [value, axes], [output])
        self.nodes.append(node)

    def stacked(self, values: Sequence[str], axis: int, output: str) -> None:
        """Give ``output`` the values along a new axis."""
        parts = [self.unsqueezed(value, axis) for value in values]
        self.nodes.append(helper.make_node("Concat", parts, [output], axis=axis))

    def passed_on(self, value: str, output: str) -> None:
        """Give ``output`` a value."""
        self.nodes.append(helper.make_node("Identity", [value], [output]))

    def body(self, graph: onnx.GraphProto, inputs: Sequence[str]) -> list[str]:
        """Add the nodes of a body that reads these; returns the names of its results."""
        names = {value.name: given for value, given in zip(graph.input, inputs, strict=True)}
        for tensor in graph.initializer:
            names[tensor.name] = self.op("Constant", [], tensor.name, value=tensor)
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
        names |= {name: self.fresh(name) for node in copies for name in node.output if name}
        for node in copies:
            node.output[:] = [names.get(name, name) for name in node.output]
        rename_reads(copies, names)
        self.nodes += copies
        return [names.get(value.name, value.name) for value in graph.output]


def is_short(body: onnx.GraphProto, rounds: int) -> bool:
    """Whether the rounds of a body are few enough to be written out."""
    count = sum(len(graph.node) for graph in all_graphs(body))
    return rounds <= MAX_ROUNDS and rounds * count <= MAX_NODES


# ---------------------------------------------------------------------- loops


def unrolled_loop(
    node: onnx.NodeProto, constant: Callable[[str], np.ndarray | None], write: Round
) -> Nodes | None:
    """The rounds of a Loop; None where their number is not known, or nothing would be written."""
    body = next(a.g for a in node.attribute if a.name == "body")
    limit, first = ([*node.input, "", ""])[:2]
    states = list(node.input[2:])
    rounds = _rounds(body, constant(limit) if limit else None, constant(first) if first else None)
    if (first and constant(first) is None) or rounds is None or not is_short(body, rounds):
        return None
    if rounds == 0 and len(node.output) > len(states):
        return None  # of no element, whose shape the body alone knows
    kept: list[list[str]] = [[] for _ in node.output[len(states) :]]
    for number in range(rounds):
        place = write.constant(number, "int64", body.input[0].name)
        going = write.constant(True, "bool", body.input[1].name)
        _, *results = write.body(body, [place, going, *states])
        states = results[: len(states)]
        for parts, value in zip(kept, results[len(states) :], strict=False):
            parts.append(value)
    for value, output in zip(states, node.output, strict=False):
        if output:
            write.passed_on(value, output)
    for parts, output in zip(kept, node.output[len(states) :], strict=True):
        if output:
            write.stacked(parts, 0, output)
    return write.nodes


def _rounds(
    body: onnx.GraphProto, limit: np.ndarray | None, first: np.ndarray | None
) -> int | None:
    """How often a Loop's body runs; None where that is not known."""
    if first is not None and not first.any():
        return 0
    if limit is None:
        return None
    rounds, going = max(0, int(limit.reshape(()))), body.output[0].name
    made = {name: node for node in body.node for name in node.output}
    while going in made and made[going].op_type == "Identity":
        going = made[going].input[0]
    if going == body.input[1].name:
        return rounds
    value = next((numpy_helper.to_array(t) for t in body.initializer if t.name == going), None)
    if going in made and made[going].op_type == "Constant":
        tensor = next((a.t for a in made[going].attribute if a.name == "value"), None)
        value = None if tensor is None else numpy_helper.to_array(tensor)
    if value is None:
        return None
    return rounds if value.any() else min(rounds, 1)


# ---------------------------------------------------------------------- scans


def unrolled_scan(
    node: onnx.NodeProto, shape: Callable[[str], list[int | None] | None], write: Round
) -> Nodes | None:
    """The rounds of a Scan; None where their number is not known, or nothing would be written."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    batched = write.opset < _WITHOUT_BATCH
    values = list(node.input[1:] if batched else node.input)
    if batched and node.input[0]:
        return None
    count, body = attributes["num_scan_inputs"], attributes["body"]
    states, scanned = values[: len(values) - count], values[len(values) - count :]
    places = _Axes.of(attributes, scanned, len(node.output) - len(states), batched, shape)
    if places is None or not is_short(body, places.rounds * places.batch) or not places.rounds:
        return None
    finals: list[list[str]] = []
    joined: list[list[str]] = []
    for row in range(places.batch):
        own = _row(write, states, row) if batched else states
        of_row = _row(write, scanned, row) if batched else scanned
        own, parts = _scan_once(write, body, own, of_row, places)
        finals.append(own)
        joined.append(parts)
    outputs = list(node.output)
    for place, output in enumerate(outputs):
        results = [[*own, *parts][place] for own, parts in zip(finals, joined, strict=True)]
        if not output:
            continue
        if batched:
            write.stacked(results, 0, output)
        else:
            write.passed_on(results[0], output)
    return write.nodes


@dataclass(frozen=True)
class _Axes:
    """Where a Scan reads and writes: axes, and which of them backwards."""

    rounds: int
    batch: int
    inputs: list[int]
    backward: list[int]
    outputs: list[int]
    prepended: list[int]

    @classmethod
    def of(
        cls,
        attributes: dict[str, object],
        scanned: Sequence[str],
        results: int,
        batched: bool,
        shape: Callable[[str], list[int | None] | None],
    ) -> _Axes | None:
        """Read attributes; None where the number of rounds is not known."""
        nothing = [0] * len(scanned)
        axes = list(attributes.get("scan_input_axes", nothing))
        backward = attributes.get("directions" if batched else "scan_input_directions", nothing)
        shapes = [shape(name) for name in scanned]
        if any(extents is None for extents in shapes):
            return None
        extents = [s[(a + batched) if a >= 0 else a] for s, a in zip(shapes, axes, strict=True)]
        batch = shapes[0][0] if batched else 1
        if extents[0] is None or batch is None or len(set(extents)) > 1:
            return None
        none = [0] * results
        outputs = list(attributes.get("scan_output_axes", none))
        prepended = list(attributes.get("scan_output_directions", none))
        return cls(extents[0], batch, axes, list(backward), outputs, prepended)


def _row(write: Round, values: Sequence[str], row: int) -> list[str]:
    """One element of the batch of each value."""
    at = write.constant(row, "int64", "row")
    return [write.op("Gather", [value, at], value, axis=0) for value in values]


def _scan_once(
    write: Round,
    body: onnx.GraphProto,
    states: Sequence[str],
    scanned: Sequence[str],
    places: _Axes,
) -> tuple[list[str], list[str]]:
    """The states after all rounds, and what the rounds gave, joined."""
    states, kept = list(states), [[] for _ in places.outputs]
    for number in range(places.rounds):
        parts = []
        for value, axis, back in zip(scanned, places.inputs, places.backward, strict=True):
            at = places.rounds - 1 - number if back else number
            index = write.constant(at, "int64", "place")
            parts.append(write.op("Gather", [value, index], value, axis=axis))
        results = write.body(body, [*states, *parts])
        states = results[: len(states)]
        for values, value in zip(kept, results[len(states) :], strict=True):
            values.append(value)
    joined = []
    for values, axis, first in zip(kept, places.outputs, places.prepended, strict=True):
        output = write.fresh("scanned")
        write.stacked(values[::-1] if first else values, axis, output)
        joined.append(output)
    return states, joined
