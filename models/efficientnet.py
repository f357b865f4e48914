"""EfficientNet-B0 (Tan and Le, 2019): SiLU, and gates per channel (squeeze and excitation)."""

from __future__ import annotations

import onnx

from models.builder import GraphBuilder

_STAGES = (  # expansion, channels, blocks, first stride, kernel
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def efficientnet_b0(batch: int = 1, size: int = 224, seed: int = 19) -> onnx.ModelProto:
    """Image [batch, 3, size, size] to logits [batch, 1000], BatchNormalization not folded."""
    graph = GraphBuilder("efficientnet_b0", seed)
    x = graph.input("image", (batch, 3, size, size))
    x = _conv_bn_silu(graph, x, (3, 32), 3, stride=2)
    channels = 32
    for expansion, out_channels, blocks, first_stride, kernel in _STAGES:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            x = _block(graph, x, (channels, out_channels), expansion, stride, kernel)
            channels = out_channels
    x = _conv_bn_silu(graph, x, (channels, 1280), 1)
    x = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
    graph.output(graph.gemm(x, (1280, 1000)), "logits", (batch, 1000))
    return graph.build()


def _block(
    graph: GraphBuilder,
    x: str,
    channels: tuple[int, int],
    expansion: int,
    stride: int,
    kernel: int,
) -> str:
    in_channels, out_channels = channels
    hidden = in_channels * expansion
    y = x
    if expansion != 1:
        y = _conv_bn_silu(graph, y, (in_channels, hidden), 1)
    y = _conv_bn_silu(graph, y, (hidden, hidden), kernel, stride=stride, groups=hidden)
    y = graph.op("Mul", _gate(graph, y, hidden, max(1, in_channels // 4)), y)
    y = graph.conv(y, (hidden, out_channels), 1, bias=False, gain=1.0)
    if stride == 1 and in_channels == out_channels:
        return graph.op("Add", graph.batch_norm(y, out_channels, 0.4), x)
    return graph.batch_norm(y, out_channels)


def _gate(graph: GraphBuilder, x: str, channels: int, squeezed: int) -> str:
    """Per channel, a number in (0, 1) that depends on the means of all channels."""
    y = graph.op("GlobalAveragePool", x)
    y = graph.silu(graph.conv(y, (channels, squeezed), 1))
    return graph.op("Sigmoid", graph.conv(y, (squeezed, channels), 1))


def _conv_bn_silu(
    graph: GraphBuilder,
    x: str,
    channels: tuple[int, int],
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
) -> str:
    y = graph.conv(x, channels, kernel, stride=stride, groups=groups, bias=False)
    return graph.silu(graph.batch_norm(y, channels[1]))
