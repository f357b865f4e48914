"""Small graphs with inputs, joined into one model, so that they cost one compilation.

They take no part in one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 20


@dataclass
class Case:
    """A graph whose values have names of its own; the last node's output is the result."""

    name: str
    inputs: dict[str, np.ndarray]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    #: Where ONNX Runtime's answer is not ours: what is, by NumPy, and why.
    expected: np.ndarray | None = None
    why: str = ""

    @property
    def output(self) -> str:
        """The name of the result."""
        return self.nodes[-1].output[0]

    def op(self, kind: str, *operands: str | np.ndarray, **attributes: object) -> str:
        """Add a node, whose operands are names or constants; returns its result."""
        names = []
        for operand in operands:
            if not isinstance(operand, str):
                name = f"{self.name}_w{len(self.weights)}"
                self.weights[name] = np.asarray(operand)
                operand = name
            names.append(operand)
        result = f"{self.name}_v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [result], **attributes))
        return result

    def decide(self, why: str, expected: np.ndarray) -> None:
        """Say what is right where engines differ."""
        self.why, self.expected = why, expected

    def model(self) -> onnx.ModelProto:
        """The case alone."""
        return joined([self])


def joined(cases: Sequence[Case]) -> onnx.ModelProto:
    """One model with every case, whose outputs have the cases' names."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    inputs: list[onnx.ValueInfoProto] = []
    for case in cases:
        nodes += case.nodes
        nodes.append(helper.make_node("Identity", [case.output], [case.name]))
        weights += [numpy_helper.from_array(a, name) for name, a in case.weights.items()]
        inputs += [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape)
            )
            for name, a in case.inputs.items()
        ]
    outputs = [helper.make_empty_tensor_value_info(case.name) for case in cases]
    graph = helper.make_graph(nodes, "special", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def all_inputs(cases: Sequence[Case]) -> dict[str, np.ndarray]:
    """Inputs of the joined model."""
    return {name: array for case in cases for name, array in case.inputs.items()}
