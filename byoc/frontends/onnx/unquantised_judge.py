"""The network before it was quantised as the judge of the quantised one.

What an integer tensor stands for is (x - zero_point) * scale, of which the judge has the right
value. Quantisers keep names of values: those behind ``QuantizeLinear`` and ``DequantizeLinear`` are
found by these, else by the name of the node that gives them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import numpy_helper

from byoc.errors import VerifyError
from byoc.frontends.onnx.given_model import GivenModel
from byoc.frontends.onnx.graph_names import known_as, makers, nodes_by_name
from byoc.frontends.onnx.judge import Judge
from byoc.frontends.onnx.quantised_operators import QUANTISED, Places
from byoc.frontends.reference import Arrays

#: What ONNX Runtime's quantiser adds to the names of values and nodes that become integers.
_VALUE, _NODE = "_quantized", "_quant"

#: Activations that the bounds of integers stand for, where a quantiser drops them.
_BOUNDS = ("Relu", "Clip")


@dataclass(frozen=True)
class Meaning:
    """The value of the unquantised network that a tensor stands for, and how, where by integers."""

    value: str
    scale: float | None = None
    zero_point: int = 0


class UnquantisedJudge(Judge):
    """Judges values of ``model`` by those of ``reference``. Values are known by ``model``'s names.

    Raises ``VerifyError`` where the two have other inputs or outputs.
    """

    def __init__(self, model: GivenModel, reference: GivenModel) -> None:
        super().__init__(model)
        self._reference = Judge(reference)
        self.name = f"the unquantised network in {self.name}"
        pairs = (("input", self.inputs, self._reference.inputs),)
        for what, mine, theirs in (*pairs, ("output", self.outputs, self._reference.outputs)):
            if other := sorted(set(mine) ^ set(theirs)):
                raise VerifyError(
                    f"{what} {other[0]!r} is in the model or in its reference only; give the "
                    "network that was quantised"
                )
        graph = self.model.graph
        self._makers = makers(graph)
        self._stored = {tensor.name: tensor for tensor in graph.initializer}
        self._kept = {*self._makers, *map(known_as, graph.node)}
        self._nodes = nodes_by_name(self._reference.model.graph)
        self._theirs = makers(self._reference.model.graph)
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self._reference.model.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._meanings = {
            name: found for name in self._makers if (found := self._meaning(name)) is not None
        }
        for name in self.outputs:  # they are called alike
            self._meanings.setdefault(name, Meaning(name))

    def has(self, value: str) -> bool:
        """Whether a value of the model stands for one of the reference."""
        return value in self._meanings

    def values(self, names: Collection[str], inputs: Mapping[str, np.ndarray]) -> Arrays:
        """What values of the model stand for, by name, as the reference computes it."""
        wanted = {name: self._meanings[name].value for name in names}
        asked = {value for value in wanted.values() if value not in inputs}
        found = {**inputs, **self._reference.values(asked, inputs)}
        return {name: found[value] for name, value in wanted.items()}

    def told(self, value: str, array: np.ndarray) -> np.ndarray:
        """What an array of the model's value stands for."""
        meaning = self._meanings[value]
        if meaning.scale is None:
            return array
        return (array.astype(np.float32) - meaning.zero_point) * np.float32(meaning.scale)

    def given(self, value: str, array: np.ndarray, dtype: str) -> np.ndarray:
        """The array of the model's value that stands for an array of the reference."""
        meaning = self._meanings[value]
        if meaning.scale is None:
            return super().given(value, array, dtype)
        bounds = np.iinfo(dtype)
        integers = np.rint(array / np.float32(meaning.scale)) + meaning.zero_point
        return np.clip(integers, bounds.min, bounds.max).astype(dtype)

    def _meaning(self, name: str) -> Meaning | None:
        maker = self._makers.get(name)
        if maker is None:
            return Meaning(name) if name in self._reference.inputs else None
        if maker.op_type == "DequantizeLinear":
            found = self._meaning(maker.input[0])
            return None if found is None else Meaning(found.value)
        if maker.op_type == "QuantizeLinear":
            value = self._quantised(maker.input[0])
            return None if value is None else self._integers(value, maker, Places(0, 1, 2))
        known = QUANTISED.get(maker.op_type)
        if known is not None and known.result is not None:
            value = self._named(name, maker, known.operator)
            return None if value is None else self._integers(value, maker, known.result)
        value = self._named(name, maker, maker.op_type)
        if value is None:
            return None
        if not name.endswith(_VALUE):
            return Meaning(self._before_bounds(value, maker))
        # A node that only moves, of integers: they stand for what they stood for before.
        before = self._meaning(maker.input[0])
        return None if before is None else replace(before, value=value)

    def _quantised(self, name: str) -> str | None:
        """What a float tensor stands for once it is quantised: bounds may be activations."""
        maker = self._makers.get(name)
        if maker is None or maker.op_type == "DequantizeLinear":
            found = self._meaning(name)
            return None if found is None else found.value
        return self._named(name, maker, maker.op_type)

    def _integers(self, value: str, maker: onnx.NodeProto, places: Places) -> Meaning | None:
        """Integers of one scale and zero point; None where these are several, or no constants."""
        if places.scale >= len(maker.input):
            return Meaning(value)
        scale = self._number(maker.input[places.scale])
        named = maker.input[places.zero_point] if places.zero_point < len(maker.input) else ""
        zero = self._number(named) if named else 0
        return None if scale is None or zero is None else Meaning(value, scale, int(zero))

    def _number(self, name: str) -> float | None:
        if name not in self._stored:
            return None
        values = numpy_helper.to_array(self._stored[name], str(self.folder or ""))
        return float(values.reshape(())) if values.size == 1 else None

    def _named(self, name: str, maker: onnx.NodeProto, operator: str) -> str | None:
        """The reference's value of this name, or that of its node of this name and operator."""
        for value in (name, name.removesuffix(_VALUE)):
            if self._reference.has(value):
                return self._bounded(value)
        place = list(maker.output).index(name)
        for called in (known_as(maker), known_as(maker).removesuffix(_NODE)):
            node = self._nodes.get(called)
            if node is not None and node.op_type == operator:
                value = node.output[place] if place < len(node.output) else ""
                return self._bounded(value) if value else None
        return None

    def _bounded(self, value: str) -> str:
        """The value behind activations that the quantised network has no more."""
        while True:
            readers = self._readers.get(value, [])
            if value in self.outputs or len(readers) != 1 or readers[0].op_type not in _BOUNDS:
                return value
            names = {known_as(readers[0]), readers[0].output[0]}
            names |= {name + _NODE for name in names} | {name + _VALUE for name in names}
            if names & self._kept:
                return value
            value = readers[0].output[0]

    def _before_bounds(self, value: str, maker: onnx.NodeProto) -> str:
        """The value before activations that ``maker``, which has another operator, does not do."""
        while True:
            node = self._theirs.get(value)
            if node is None or node.op_type not in _BOUNDS or node.op_type == maker.op_type:
                return value
            value = node.input[0]
