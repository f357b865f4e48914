"""A graph under construction. Every operator runs in ONNX Runtime as soon as it is added.

So no step of a generator computes shapes or dtypes: it draws an operator and attributes, and what
ONNX Runtime refuses, or what would bring numbers that cannot be compared, is not added. A graph
with symbolic axes is evaluated in several *worlds*, one for each set of sizes; an operator that is
not defined in all of them is not added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz.evaluate import IR_VERSION, Unrunnable, session

FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int64", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")

#: Elements of a value; more would make TVM's own loops slow.
MAX_ELEMENTS = 6000

#: Greatest magnitude of floating-point values in ordinary graphs.
MAX_MAGNITUDE = 1e4

#: What a graph in the mode of special values is fed with, between ordinary values.
SPECIAL = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-40, -1e-40, 0.0, -0.0, 1e20, 88.8, -104.0)

World = dict[str, int]


class Unusable(Exception):
    """An operator cannot be added with these operands."""


@dataclass
class Drawn:
    """A finished graph, and what it is fed with.

    ``shapes`` has inputs with symbolic axes, as ``byoc.compile`` takes them; ``feeds`` has inputs
    for each world.
    """

    model: onnx.ModelProto
    feeds: list[dict[str, np.ndarray]]
    shapes: dict[str, list[int | str]] = field(default_factory=dict)
    special: bool = False

    def operators(self) -> Counter[str]:
        """How often each operator occurs."""
        return Counter(node.op_type for node in self.model.graph.node)


class Draft:
    """A graph under construction: its nodes, and its values with their results in each world.

    With ``worlds`` of one empty mapping all shapes are static.
    """

    def __init__(
        self,
        seed: int,
        opset: int,
        worlds: Sequence[World] = ({},),
        special: bool = False,
        prefix: str = "",
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset, self.worlds, self.special, self.prefix = opset, list(worlds), special, prefix
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.inputs: dict[str, list[int | str]] = {}
        self.values: dict[str, list[np.ndarray]] = {}
        self.outputs: list[str] = []
        self._names = 0

    # ------------------------------------------------------------------ drawing

    def chance(self, share: float) -> bool:
        """True in ``share`` of all calls."""
        return bool(self.rng.random() < share)

    def pick(self, items: Sequence[Any]) -> Any:
        """One of the items."""
        if not len(items):
            raise Unusable("nothing to draw from")
        return items[int(self.rng.integers(len(items)))]

    def between(self, low: int, high: int) -> int:
        """An integer of [low, high]."""
        return int(self.rng.integers(low, high + 1))

    def array(self, shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
        """Values of an input or a weight; some are halves, so that ties and roundings occur."""
        shape = tuple(int(extent) for extent in shape)
        if dtype == "bool":
            return np.asarray(self.rng.random(shape) < 0.5)
        if dtype not in FLOATS:
            low = 0 if dtype.startswith("u") else -6
            return np.asarray(self.rng.integers(low, 7, shape), dtype)
        values = np.asarray(self.rng.uniform(-1.5, 1.5, shape))
        if self.chance(0.2):
            values = np.round(values * 4) / 2
        if self.special and self.chance(0.8):
            chosen = self.rng.choice(np.array(SPECIAL), shape)
            values = np.where(self.rng.random(shape) < 0.15, chosen, values)
        with np.errstate(over="ignore"):
            return np.asarray(values, dtype)

    # ------------------------------------------------------------------ values

    def name(self, kind: str) -> str:
        """A fresh name."""
        self._names += 1
        return f"{self.prefix}{kind}{self._names}"

    def shape(self, value: str) -> tuple[int, ...]:
        """The shape of a value in the first world."""
        return self.values[value][0].shape

    def rank(self, value: str) -> int:
        """The rank of a value."""
        return self.values[value][0].ndim

    def dtype(self, value: str) -> str:
        """The dtype of a value, as numpy names it."""
        return str(self.values[value][0].dtype)

    def is_fixed(self, value: str, axis: int | None = None) -> bool:
        """Whether an axis, or every axis, has the same extent in all worlds."""
        shapes = {v.shape if axis is None else v.shape[axis] for v in self.values[value]}
        return len(shapes) == 1

    def input(self, shape: Sequence[int | str], dtype: str = "float32") -> str:
        """A new input of the graph; a name among the extents is a symbol of the worlds."""
        name = self.name("x")
        self.inputs[name] = list(shape)
        self.values[name] = [
            self.array([world[e] if isinstance(e, str) else e for e in shape], dtype)
            for world in self.worlds
        ]
        return name

    def constant(self, values: Any, dtype: str | None = None, fixed: bool = True) -> str:
        """A constant: an initializer, sometimes a Constant node.

        One that need not be ``fixed`` is, now and then, an input of the graph.
        """
        array = np.asarray(values, dtype)
        if not fixed and self.chance(0.08):
            name = self.name("x")
            self.inputs[name] = list(array.shape)
        elif self.chance(0.15):
            name = self.name("c")
            self.nodes.append(
                helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
            )
        else:
            name = self.name("w")
            self.weights[name] = array
        self.values[name] = [array] * len(self.worlds)
        return name

    def weight(self, shape: Sequence[int], scale: float = 1.0, dtype: str = "float32") -> str:
        """A constant tensor of random values."""
        return self.constant(self.array(shape, dtype) * np.asarray(scale, dtype), fixed=False)

    def candidates(
        self, dtypes: Sequence[str] = FLOATS[:1], ranks: Sequence[int] = range(7)
    ) -> list[str]:
        """Values of given dtypes and ranks that are no constants."""
        return [
            name
            for name, worlds in self.values.items()
            if name not in self.weights
            and str(worlds[0].dtype) in dtypes
            and worlds[0].ndim in ranks
        ]

    # ------------------------------------------------------------------ operators

    def op(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> Any:
        """Add a node; return its output, or the list of its outputs.

        Raises ``Unusable`` if ONNX Runtime refuses it, or if results could not be compared.
        """
        given = {key: value for key, value in attributes.items() if value is not None}
        names = [self.name("v") for _ in range(outputs)]
        node = helper.make_node(kind, list(inputs), names, domain=domain, **given)
        self.add(node)
        return names[0] if outputs == 1 else names

    def add(self, node: onnx.NodeProto) -> None:
        """Add a node whose outputs have fresh names, as ``op`` does."""
        self._require_harmless(node)
        results = self._run(node)
        for index, name in enumerate(node.output):
            if name:
                self.values[name] = [world[index] for world in results]
        self.nodes.append(node)

    def _require_harmless(self, node: onnx.NodeProto) -> None:
        """The least integer, which a cast of NaN gives, by -1 ends ONNX Runtime's process."""
        if not self.special or node.op_type not in ("Div", "Mod"):
            return
        divisor = node.input[1]
        if self.values[divisor][0].dtype.kind != "i":
            return
        if divisor not in self.weights or (self.weights[divisor] == -1).any():
            raise Unusable(f"{node.op_type} may divide the least integer by -1")

    def _run(self, node: onnx.NodeProto) -> list[list[np.ndarray]]:
        outer = {name for name in _read_inside(node) if name in self.values}
        names = list(dict.fromkeys([*filter(None, node.input), *sorted(outer)]))
        stored = [name for name in names if name in self.weights]
        fed = [name for name in names if name not in self.weights]
        graph = helper.make_graph(
            [node],
            "node",
            [_typed(name, self.values[name][0]) for name in fed],
            [helper.make_empty_tensor_value_info(name) for name in node.output if name],
            [numpy_helper.from_array(self.weights[name], name) for name in stored],
        )
        try:
            run = session(_model(graph, self.opset))
            results = [
                run.run(None, {name: self.values[name][world] for name in fed})
                for world in range(len(self.worlds))
            ]
        except Exception as error:
            raise Unusable(f"ONNX Runtime refuses {node.op_type}: {error}") from error
        for world in results:
            for value in world:
                self._require_usable(node, value)
        by_name = [iter(world) for world in results]
        return [[next(world) if name else None for name in node.output] for world in by_name]

    def _require_usable(self, node: onnx.NodeProto, value: Any) -> None:
        if not isinstance(value, np.ndarray):
            raise Unusable(f"{node.op_type} gives no tensor")
        if value.size > MAX_ELEMENTS or value.ndim > 6:
            raise Unusable(f"{node.op_type} gives too much: {value.shape}")
        if value.dtype.kind == "f" and not self.special and value.size:
            largest = np.abs(value).max()
            if not largest < MAX_MAGNITUDE:
                raise Unusable(f"{node.op_type} gives {largest}")

    # ------------------------------------------------------------------ the end

    def finish(self) -> Drawn:
        """The graph as a model. Raises ``Unusable`` if it computes nothing, or ONNX Runtime does
        not take it as a whole."""
        computed = [name for node in self.nodes for name in node.output if name in self.values]
        read = {name for node in self.nodes for name in (*node.input, *_read_inside(node))}
        outputs = [name for name in computed if name not in read]
        inner = [name for name in computed if name in read]
        outputs += [name for name in inner if self.chance(0.08)]  # inner values, perhaps
        outputs = [name for name in outputs if self._is_output(name)]
        outputs = [outputs[int(i)] for i in self.rng.permutation(len(outputs))]
        if not outputs:
            raise Unusable("nothing is computed from the inputs")
        if self.chance(0.05) and self.inputs:
            outputs.append(self.pick(list(self.inputs)))
        used = read | set(outputs)
        inputs = [name for name in self.inputs if name in used or self.chance(0.1)]
        graph = helper.make_graph(
            self.nodes,
            "fuzz",
            [_typed(name, self.values[name][0], self.inputs[name]) for name in inputs],
            [helper.make_tensor_value_info(n, _code(self.values[n][0]), None) for n in outputs],
            [numpy_helper.from_array(a, n) for n, a in self.weights.items() if n in used],
        )
        model = _model(graph, self.opset)
        symbolic = {
            n: self.inputs[n] for n in inputs if any(isinstance(e, str) for e in self.inputs[n])
        }
        feeds = [
            {name: self.values[name][world] for name in inputs} for world in range(len(self.worlds))
        ]
        drawn = Drawn(model, feeds, symbolic, self.special)
        try:
            session(model)
        except Unrunnable as error:
            raise Unusable(f"ONNX Runtime refuses the whole: {error}") from error
        return drawn

    def _is_output(self, name: str) -> bool:
        return self.dtype(name) in (*FLOATS, *INTEGERS, "bool")


def _typed(
    name: str, array: np.ndarray, shape: Sequence[int | str] | None = None
) -> onnx.ValueInfoProto:
    extents = [None] * array.ndim if shape is None else list(shape)
    return helper.make_tensor_value_info(name, _code(array), extents)


def _code(array: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def _model(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    domains = {node.domain for node in graph.node if node.domain}
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in sorted(domains))]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = IR_VERSION
    return model


def _read_inside(node: onnx.NodeProto) -> list[str]:
    """Names that the graphs inside a node read."""
    return [
        name
        for attribute in node.attribute
        if attribute.type == onnx.AttributeProto.GRAPH
        for inner in attribute.g.node
        for name in (*inner.input, *_read_inside(inner))
    ]
