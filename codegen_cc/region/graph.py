"""Region graph: nodes and the values that flow between them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import sympy

from codegen_cc import dtypes
from codegen_cc.dim import Dim
from codegen_cc.node import Node


@dataclass(eq=False)
class Value:
    """A tensor that flows between nodes: a region input, a constant (``data``) or a result."""

    name: str
    shape: tuple[Dim, ...]
    dtype: str
    data: np.ndarray | None = None

    @property
    def is_float(self) -> bool:
        """Whether its elements are floating-point numbers that kernels compute with."""
        return self.dtype in dtypes.KERNEL_FLOATS

    @property
    def is_image(self) -> bool:
        """Whether it lies best as images do, its channels last.

        It has four axes, and holds what convolutions read: floating-point numbers, or the integers
        of 8 bits that stand for them.
        """
        return len(self.shape) == 4 and (self.is_float or self.dtype in dtypes.KERNEL_BYTES)


@dataclass(eq=False)
class RegionNode:
    """One call of a composite: its descriptor, its operands in order, its results in order."""

    node: Node
    inputs: list[Value]
    outputs: list[Value]

    @property
    def output(self) -> Value:
        """The first result."""
        return self.outputs[0]

    def role(self, role: str) -> Value | None:
        """The operand of that role, or None."""
        for operand, value in zip(self.node.operands, self.inputs, strict=True):
            if operand.role == role:
                return value
        return None


@dataclass
class Region:
    """One region: C symbol, inputs, nodes in topological order, outputs.

    ``sizes`` are the symbols that no input has as an axis; the caller passes them, as a shape,
    before the inputs. ``states`` are the inputs that the region writes to: their first rows are
    there, and a concatenation puts new ones behind them. ``replaced`` are numbers of inputs, each
    with that of the output that the next call gets there: the caller may give both one memory,
    where the plan says so (``codegen_cc.plan.rows_in_place``).
    """

    symbol: str
    inputs: list[Value]
    outputs: list[Value] = field(default_factory=list)
    nodes: list[RegionNode] = field(default_factory=list)
    sizes: tuple[sympy.Symbol, ...] = ()
    states: tuple[Value, ...] = ()
    replaced: tuple[tuple[int, int], ...] = ()

    def consumers(self) -> dict[Value, list[RegionNode]]:
        """The nodes that read each value, each named once per operand that it fills."""
        result: dict[Value, list[RegionNode]] = {}
        for node in self.nodes:
            for value in node.inputs:
                result.setdefault(value, []).append(node)
        return result

    def private_producers(self) -> dict[Value, RegionNode]:
        """The node that computes each value which one operand of one node alone reads."""
        consumers, outside = self.consumers(), set(self.outputs)
        return {
            value: node
            for node in self.nodes
            for value in node.outputs
            if value not in outside and len(consumers.get(value, ())) == 1
        }
