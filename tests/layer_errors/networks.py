"""Small networks whose layers are compared, and where a library is that computes them wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

from models.builder import GraphBuilder
from tests.quantised.float_networks import Batches

#: A library whose products of matrices are wrong.
WRONG = Path(__file__).parent / "wrong" / "library.py"


def perceptron() -> onnx.ModelProto:
    """Four products of matrices with bias and ReLU, named fc0 to fc3, and a softmax."""
    graph = GraphBuilder("perceptron", seed=3)
    draw = np.random.default_rng(4)
    x = graph.input("x", (5, 32))
    for _ in range(4):
        weight = draw.normal(0, 0.25, (32, 32)).astype(np.float32)
        x = graph.op("MatMul", x, graph.constant(weight))
        bias = draw.normal(0, 0.25, 32).astype(np.float32)
        x = graph.op("Relu", graph.op("Add", x, graph.constant(bias)))
    graph.output(graph.op("Softmax", x, axis=-1), "y", (5, 32))
    model = graph.build()
    products = [node for node in model.graph.node if node.op_type == "MatMul"]
    for number, node in enumerate(products):
        node.name = f"fc{number}"
    return model


def quantised(plain: onnx.ModelProto, folder: Path) -> Path:
    """A float network with QuantizeLinear and DequantizeLinear, by ONNX Runtime."""
    source, path = folder / "float.onnx", folder / "quantised.onnx"
    onnx.save(plain, source)
    quantize_static(
        source,
        path,
        Batches(source),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return path
