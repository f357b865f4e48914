"""ResNet-50 v1.5 (He et al., 2015; the stride of a block sits in its 3x3 convolution)."""

from __future__ import annotations

import onnx

from .builder import GraphBuilder

_STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # blocks, width, first stride
_EXPANSION = 4


def resnet50(batch: int = 1, size: int = 224, seed: int = 50) -> onnx.ModelProto:
    """Image [batch, 3, size, size] to logits [batch, 1000], BatchNormalization not folded."""
    graph = GraphBuilder("resnet50", seed)
    x = graph.input("image", (batch, 3, size, size))
    x = _conv_bn(graph, x, (3, 64), 7, stride=2)
    x = graph.op("Relu", x)
    x = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for blocks, width, first_stride in _STAGES:
        for block in range(blocks):
            x = _bottleneck(graph, x, channels, width, first_stride if block == 0 else 1)
            channels = width * _EXPANSION
    x = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
    graph.output(graph.gemm(x, (channels, 1000)), "logits", (batch, 1000))
    return graph.build()


def _bottleneck(graph: GraphBuilder, x: str, channels: int, width: int, stride: int) -> str:
    out_channels = width * _EXPANSION
    y = graph.op("Relu", _conv_bn(graph, x, (channels, width), 1))
    y = graph.op("Relu", _conv_bn(graph, y, (width, width), 3, stride=stride))
    y = _conv_bn(graph, y, (width, out_channels), 1, scale=0.4)
    if stride != 1 or channels != out_channels:
        x = _conv_bn(graph, x, (channels, out_channels), 1, stride=stride, gain=1.0)
    return graph.op("Relu", graph.op("Add", y, x))


def _conv_bn(
    graph: GraphBuilder,
    x: str,
    channels: tuple[int, int],
    kernel: int,
    *,
    stride: int = 1,
    scale: float = 1.0,
    gain: float = 2.0,
) -> str:
    y = graph.conv(x, channels, kernel, stride=stride, bias=False, gain=gain)
    return graph.batch_norm(y, channels[1], scale)
