"""Small networks for the tests of deployment, and ONNX Runtime's answers to them."""

from __future__ import annotations

import numpy as np
import onnx

from models.builder import GraphBuilder


def two_by_two() -> onnx.ModelProto:
    """Two inputs that the network reads in the other order, two outputs."""
    graph = GraphBuilder("two_by_two", 5)
    image = graph.input("image", (1, 3, 16, 16))
    scale = graph.input("scale", (1, 8, 1, 1))
    x = graph.op("Mul", graph.op("Sigmoid", scale), graph.op("Relu", graph.conv(image, (3, 8), 3)))
    graph.output(graph.op("Softmax", x, axis=1), "probabilities", (1, 8, 16, 16))
    graph.output(graph.op("GlobalAveragePool", x), "mean", (1, 8, 1, 1))
    return graph.build()


def inputs_of_two_by_two(seed: int) -> dict[str, np.ndarray]:
    """Inputs of ``two_by_two``."""
    draw = np.random.default_rng(seed)
    return {
        "image": draw.standard_normal((1, 3, 16, 16), np.float32),
        "scale": draw.standard_normal((1, 8, 1, 1), np.float32),
    }
