"""Small float networks that onnxruntime.quantization quantises, and what calibrates them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader


class Network:
    """A graph, written node by node, of seeded weights."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []

    def constant(self, value: np.ndarray) -> str:
        self.stored.append(numpy_helper.from_array(np.asarray(value), f"c{len(self.stored)}"))
        return self.stored[-1].name

    def weight(self, *shape: int) -> str:
        return self.constant(self.draw.normal(0, 0.2, shape).astype(np.float32))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def op(self, kind: str, *inputs: str, **attributes) -> str:
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [f"{name}_y"], name, **attributes))
        return f"{name}_y"

    def model(self, shape: tuple[int, ...], output: str) -> onnx.ModelProto:
        float_ = onnx.TensorProto.FLOAT
        inputs = [helper.make_tensor_value_info("x", float_, shape)]
        outputs = [helper.make_tensor_value_info(output, float_, None)]
        graph = helper.make_graph(self.nodes, "network", inputs, outputs, self.stored)
        opsets = [helper.make_opsetid("", 17)]
        return onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=opsets, ir_version=9)
        )


def resnet_like() -> onnx.ModelProto:
    """Convolutions of all kinds, a residual, gates, pools, a join, a resize and a classifier."""
    net = Network(0)

    def conv(x: str, outputs: int, inputs: int, kernel: int, **attributes) -> str:
        weight = net.weight(outputs, inputs // attributes.get("group", 1), kernel, kernel)
        pads = [kernel // 2] * 4
        return net.op("Conv", x, weight, net.weight(outputs), pads=pads, **attributes)

    x = net.op("Relu", conv("x", 8, 3, 7, strides=[2, 2]))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = conv(net.op("Relu", conv(x, 8, 8, 3)), 8, 8, 3)
    x = net.op("Relu", net.op("Add", y, x))
    y = net.op("LeakyRelu", conv(x, 8, 8, 3, group=8), alpha=0.1)
    gate = net.op("Sigmoid", conv(net.op("GlobalAveragePool", y), 8, 8, 1))
    x = net.op("Concat", x, net.op("Mul", y, gate), axis=1)
    x = net.op("AveragePool", conv(x, 12, 16, 1), kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Resize", x, "", net.constant(np.float32([1, 1, 2, 2])), mode="nearest")
    x = net.op("Flatten", net.op("GlobalAveragePool", conv(x, 12, 12, 1)))
    x = net.op("Gemm", x, net.weight(10, 12), net.weight(10), transB=1)
    return net.model((1, 3, 32, 32), x)


def bert_like() -> onnx.ModelProto:
    """One layer of attention, with the norms and the GELU of BERT, and a pooler."""
    net, width = Network(1), 32

    def linear(x: str, inputs: int, outputs: int) -> str:
        return net.op("Add", net.op("MatMul", x, net.weight(inputs, outputs)), net.weight(outputs))

    def heads(x: str) -> str:
        parts = net.op("Reshape", linear(x, width, width), net.ints(0, 0, 4, 8))
        return net.op("Transpose", parts, perm=[0, 2, 1, 3])

    x = net.op("LayerNormalization", "x", net.weight(width), net.weight(width))
    keys = net.op("Transpose", heads(x), perm=[0, 1, 3, 2])
    scores = net.op("MatMul", heads(x), keys)
    scores = net.op("Div", scores, net.constant(np.float32(8**0.5)))
    mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), heads(x))
    mixed = net.op("Transpose", mixed, perm=[0, 2, 1, 3])
    mixed = net.op("Reshape", mixed, net.ints(0, 0, width))
    x = net.op("Add", linear(mixed, width, width), x)
    x = net.op("LayerNormalization", x, net.weight(width), net.weight(width))
    h = linear(x, width, 64)
    erf = net.op("Erf", net.op("Div", h, net.constant(np.float32(2**0.5))))
    h = net.op("Mul", h, net.op("Add", erf, net.constant(np.float32(1))))
    h = net.op("Mul", h, net.constant(np.float32(0.5)))
    x = net.op("Add", linear(h, 64, width), x)
    first = net.op("Gather", x, net.constant(np.int64(0)), axis=1)
    x = net.op("Tanh", net.op("Gemm", first, net.weight(width, width), net.weight(width)))
    return net.model((1, 7, width), x)


class Batches(CalibrationDataReader):
    """Four seeded inputs of a model's file."""

    def __init__(self, path: Path) -> None:
        (value,) = onnx.load(path).graph.input
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        draw = np.random.default_rng(2)
        self.left = [draw.standard_normal(shape).astype(np.float32) for _ in range(4)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return {"x": self.left.pop()} if self.left else None
