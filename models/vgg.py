"""VGG-19 (Simonyan and Zisserman, 2014)."""

from __future__ import annotations

import onnx

from .builder import GraphBuilder

_STAGES = ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))  # convolutions, channels


def vgg19(batch: int = 1, size: int = 224, seed: int = 19) -> onnx.ModelProto:
    """Image [batch, 3, size, size] to logits [batch, 1000]; size is a multiple of 32."""
    graph = GraphBuilder("vgg19", seed)
    x = graph.input("image", (batch, 3, size, size))
    channels = 3
    for convolutions, width in _STAGES:
        for _ in range(convolutions):
            x = graph.op("Relu", graph.conv(x, (channels, width), 3))
            channels = width
        x = graph.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = graph.op("Flatten", x, axis=1)
    features = channels * (size // 32) ** 2
    x = graph.op("Relu", graph.gemm(x, (features, 4096), gain=2.0))
    x = graph.op("Relu", graph.gemm(x, (4096, 4096), gain=2.0))
    graph.output(graph.gemm(x, (4096, 1000)), "logits", (batch, 1000))
    return graph.build()
