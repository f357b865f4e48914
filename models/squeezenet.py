"""SqueezeNet 1.1 (Iandola et al., 2016)."""

from __future__ import annotations

import onnx

from .builder import GraphBuilder

_FIRE = {  # position: squeeze channels, expand channels (each of the two halves)
    1: ((16, 64), (16, 64)),
    2: ((32, 128), (32, 128)),
    3: ((48, 192), (48, 192), (64, 256), (64, 256)),
}


def squeezenet(batch: int = 1, size: int = 224, seed: int = 11) -> onnx.ModelProto:
    """Image [batch, 3, size, size] to class probabilities [batch, 1000]."""
    graph = GraphBuilder("squeezenet", seed)
    x = graph.input("image", (batch, 3, size, size))
    x = graph.op("Relu", graph.conv(x, (3, 64), 3, stride=2, padding=0))
    channels = 64
    for modules in _FIRE.values():
        x = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
        for squeeze, expand in modules:
            x = _fire(graph, x, channels, squeeze, expand)
            channels = 2 * expand
    x = graph.op("Relu", graph.conv(x, (channels, 1000), 1))
    x = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
    graph.output(graph.op("Softmax", x, axis=1), "probabilities", (batch, 1000))
    return graph.build()


def _fire(graph: GraphBuilder, x: str, channels: int, squeeze: int, expand: int) -> str:
    x = graph.op("Relu", graph.conv(x, (channels, squeeze), 1))
    left = graph.op("Relu", graph.conv(x, (squeeze, expand), 1))
    right = graph.op("Relu", graph.conv(x, (squeeze, expand), 3))
    return graph.op("Concat", left, right, axis=1)
