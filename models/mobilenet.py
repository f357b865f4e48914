"""MobileNetV2 1.0 (Sandler et al., 2018)."""

from __future__ import annotations

import onnx

from models.builder import GraphBuilder

_STAGES = (  # expansion, channels, blocks, first stride
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(batch: int = 1, size: int = 224, seed: int = 2) -> onnx.ModelProto:
    """Image [batch, 3, size, size] to logits [batch, 1000], BatchNormalization not folded."""
    graph = GraphBuilder("mobilenet_v2", seed)
    x = graph.input("image", (batch, 3, size, size))
    x = _conv_bn_relu6(graph, x, (3, 32), 3, stride=2)
    channels = 32
    for expansion, out_channels, blocks, first_stride in _STAGES:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            x = _inverted_residual(graph, x, (channels, out_channels), expansion, stride)
            channels = out_channels
    x = _conv_bn_relu6(graph, x, (channels, 1280), 1)
    x = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
    graph.output(graph.gemm(x, (1280, 1000)), "logits", (batch, 1000))
    return graph.build()


def _inverted_residual(
    graph: GraphBuilder, x: str, channels: tuple[int, int], expansion: int, stride: int
) -> str:
    in_channels, out_channels = channels
    hidden = in_channels * expansion
    y = x
    if expansion != 1:
        y = _conv_bn_relu6(graph, y, (in_channels, hidden), 1)
    y = _conv_bn_relu6(graph, y, (hidden, hidden), 3, stride=stride, groups=hidden)
    y = graph.conv(y, (hidden, out_channels), 1, bias=False, gain=1.0)
    if stride == 1 and in_channels == out_channels:
        return graph.op("Add", x, graph.batch_norm(y, out_channels, 0.4))
    return graph.batch_norm(y, out_channels)


def _conv_bn_relu6(
    graph: GraphBuilder,
    x: str,
    channels: tuple[int, int],
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
) -> str:
    y = graph.conv(x, channels, kernel, stride=stride, groups=groups, bias=False)
    return graph.relu6(graph.batch_norm(y, channels[1]))
