"""Quantised graphs, written node by node, and their results by ONNX Runtime without fusions.

With fusions ONNX Runtime adds 8-bit products in 16 bits where the CPU has no VNNI, and saturates.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper as oh
from onnx import numpy_helper as nh

from byoc.frontends.onnx.exact_reference import exact_session

#: The zero point of a tensor of both signs.
MIDDLE = np.uint8(128)


class Quantised:
    """A graph of float operators between QuantizeLinear and DequantizeLinear."""

    def __init__(self, seed: int = 0, opset: int = 17) -> None:
        self.draw = np.random.default_rng(seed)
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: dict[str, tuple] = {}

    def name(self) -> str:
        return f"v{len(self.nodes)}_{len(self.weights)}"

    def constant(self, value: np.ndarray) -> str:
        self.weights.append(nh.from_array(np.asarray(value), f"c{len(self.weights)}"))
        return self.weights[-1].name

    def op(self, kind: str, *inputs: str, **attributes) -> str:
        out = self.name()
        self.nodes.append(oh.make_node(kind, inputs, [out], **attributes))
        return out

    def input(self, *shape) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = shape
        return name

    def quantize(self, x: str, scale: float, zero=MIDDLE) -> str:
        return self.op("QuantizeLinear", x, self.constant(np.float32(scale)), self.constant(zero))

    def dequantize(self, x: str, scale, zero, **attributes) -> str:
        numbers = self.constant(np.float32(scale)), self.constant(zero)
        return self.op("DequantizeLinear", x, *numbers, **attributes)

    def there_and_back(self, x: str, scale: float, zero=MIDDLE) -> str:
        """What a calibrated activation is: quantised and dequantised with one scale."""
        return self.dequantize(self.quantize(x, scale, zero), scale, zero)

    def weight(self, *shape: int, axis: int | None = 0, dtype=np.int8, zero: int = 0) -> str:
        """Random integers; a scale for each index of the axis, or one."""
        bounds = np.iinfo(dtype)
        values = self.draw.integers(bounds.min, bounds.max, shape, dtype, endpoint=True)
        if zero == 0 and dtype == np.int8:
            values = np.maximum(values, -127)
        count = () if axis is None else (shape[axis],)
        scale = self.draw.uniform(0.002, 0.02, count).astype(np.float32)
        attributes = {} if axis is None else {"axis": axis}
        return self.dequantize(
            self.constant(values), scale, np.full(count, zero, dtype), **attributes
        )

    def bias(self, channels: int, scale: float = 0.001) -> str:
        values = self.draw.integers(-2000, 2000, channels).astype(np.int32)
        return self.dequantize(self.constant(values), scale, np.int32(0))

    def model(self, *outputs: str) -> onnx.ModelProto:
        info = oh.make_tensor_value_info
        inputs = [info(n, onnx.TensorProto.FLOAT, s) for n, s in self.inputs.items()]
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = oh.make_graph(self.nodes, "quantised", inputs, results, self.weights)
        opsets = [oh.make_opsetid("", self.opset)]
        model = oh.make_model(graph, opset_imports=opsets, ir_version=9)
        inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
        types = {value.name: value.type for value in inferred}
        for result in model.graph.output:
            result.type.CopyFrom(types[result.name])
        return model


def reference(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return exact_session(model, options).run(None, inputs)


def assert_alike(found: np.ndarray, wanted: np.ndarray, share: float = 0.001) -> None:
    """Integers are equal, or one step off in a share of the elements; floats close."""
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if found.dtype == np.float32:
        limit = 1e-5 * np.abs(wanted).max(initial=1.0)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=limit)
        return
    apart = np.abs(found.astype(np.int64) - wanted.astype(np.int64))
    assert apart.max(initial=0) <= 1
    assert (apart > 0).sum() <= max(1, share * apart.size)
