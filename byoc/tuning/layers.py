"""The layers of a network that can be tuned, and the candidates that can compute each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import tvm

from codegen_cc import dtypes
from codegen_cc.dim import is_static
from codegen_cc.dtypes import KERNEL_FLOATS
from codegen_cc.libraries import Selection
from codegen_cc.libraries.measured_choice import algorithms_of, signature
from codegen_cc.node import Node, Operand
from codegen_cc.region.read_relax import read_region

#: Operators that are timed; one where no library offers a choice is not.
OPERATORS = ("conv2d", "conv2d_transpose", "matmul")

#: Axes of images as they are timed, and back.
TO_CHANNELS_LAST, TO_CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


@dataclass(frozen=True)
class Layer:
    """A convolution or product alone: its node, its name in the model, its constants by role."""

    node: Node
    name: str
    constants: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    @property
    def operands(self) -> list[Operand]:
        """What is given at each run: the operands that are not constant."""
        return [operand for operand in self.node.operands if operand.role not in self.constants]

    def draw_inputs(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Normal numbers for ``operands``, by role."""
        draw = np.random.default_rng(seed)
        return {
            o.role: draw.standard_normal(o.shape, dtypes.of(o.dtype).numpy) for o in self.operands
        }


#: Computes a layer from inputs by role, independently of the candidates: the result, and by what it
#: was computed; None, and why the built-in kernels are all that there is.
Answer = Callable[[Layer, Mapping[str, np.ndarray]], tuple[np.ndarray | None, str]]


@dataclass(frozen=True)
class TunableLayer:
    """A kind of layer: its node, the first one's name, how often it is there, what can compute it.

    ``candidates`` are algorithms by library, the untuned choice first; ``skipped`` says why they
    are not timed, and is empty where they can be.
    """

    node: Node
    name: str
    count: int
    candidates: Mapping[str, tuple[str, ...]]
    skipped: str = ""

    @cached_property
    def signature(self) -> str:
        """What the database calls it."""
        return signature(self.node)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every library with every algorithm of it."""
        return [(name, a) for name, algorithms in self.candidates.items() for a in algorithms]

    @property
    def untuned(self) -> tuple[str, str]:
        """What computes it without a database."""
        return self.pairs[0]

    @property
    def label(self) -> str:
        """For tables and progress: operator, first operands, steps."""
        shapes = ("x".join(map(str, o.shape)) for o in self.node.operands[:2])
        steps = "".join(f" {step.kind}" for step in self.node.epilogue)
        stride = self.node.attrs.get("strides", [1, 1])
        text = f"/{stride[0]}" if len(set(stride)) == 1 else f"/{stride}"
        return f"{self.node.op}{'' if text == '/1' else text} {' * '.join(shapes)}{steps}"

    def draw(self) -> Layer:
        """The layer with drawn constants, each row of a product of about unit length."""
        generator = np.random.default_rng(0)
        constants = {}
        for operand in self.node.operands:
            if operand.constant:
                kind = dtypes.of(operand.dtype).numpy
                values = generator.standard_normal(operand.shape, kind)
                constants[operand.role] = values * kind.type(_scale(self.node, operand.role))
        return Layer(self.node, self.name, constants)


def tunable_layers(module: tvm.IRModule, selection: Selection) -> list[TunableLayer]:
    """The distinct layers of a partitioned module, in its order.

    Raises ``codegen_cc.errors.CodegenError`` where a library fails.
    """
    found: dict[str, TunableLayer] = {}
    for node in _nodes(module):
        dtypes = {node.dtype, *(operand.dtype for operand in node.operands)}
        if node.op not in OPERATORS or not dtypes <= {*KERNEL_FLOATS}:
            continue
        layer = found.get(key := signature(node))
        if layer is not None:
            found[key] = replace(layer, count=layer.count + 1)
        else:
            found[key] = _layer(node, selection)
    return list(found.values())


def _nodes(module: tvm.IRModule) -> Iterable[Node]:
    for function in module.functions.values():
        if (function.attrs or {}).get("Codegen") == "ext":
            yield from (node.node for node in read_region(function).nodes)


def _layer(node: Node, selection: Selection) -> TunableLayer:
    name = node.source[0] if node.source else node.composite
    able = selection.able(node, node.source)
    able.sort(key=lambda found: found.name != node.library)  # stable: the untuned choice first
    candidates = {found.name: algorithms_of(found, node) for found in able}
    # Names, and choices of an earlier tuning, are no part of what is timed.
    plain = replace(node, source=(), library="", algorithm="", chosen="", kept="")
    skipped = ""
    for operand in node.operands:
        if not is_static(operand.shape):
            skipped = f"{operand.role} {list(map(str, operand.shape))} has no fixed shape"
    if sum(map(len, candidates.values())) == 1:
        skipped = skipped or f"only {node.library} computes it, and in one way"
    return TunableLayer(plain, name, 1, candidates, skipped)


def _scale(node: Node, role: str) -> float:
    if role == "weight":
        return float(np.prod(node.operand(role).shape[1:])) ** -0.5
    return float(node.operand(role).shape[-2]) ** -0.5 if role == "rhs" else 1.0
