"""ResNet-50 v1.5 (He et al., 2015) and ResNeXt-50 (Xie et al., 2016).

The stride of a block sits in its 3x3 convolution.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from .builder import GraphBuilder

_STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # blocks, width, first stride
_GROUPED_STAGES = ((3, 128, 1), (4, 256, 2), (6, 512, 2), (3, 1024, 2))
_EXPANSION = 4

_Stages = Sequence[tuple[int, int, int]]


def resnet50(batch: int = 1, size: int = 224, seed: int = 50) -> onnx.ModelProto:
    """Image [batch, 3, size, size] to logits [batch, 1000], BatchNormalization not folded."""
    return _residual_network("resnet50", (batch, 3, size, size), seed, _STAGES)


def resnext50(
    batch: int = 1,
    size: int = 224,
    groups: int = 32,
    stages: _Stages = _GROUPED_STAGES,
    seed: int = 51,
) -> onnx.ModelProto:
    """ResNet-50 with 3x3 convolutions twice as wide, in groups: ResNeXt-50 32x4d.

    Image [batch, 3, size, size] to logits [batch, 1000].  ``stages`` are numbers of blocks, widths
    of the 3x3 convolutions and first strides.
    """
    shape = (batch, 3, size, size)
    return _residual_network("resnext50", shape, seed, stages, groups, expansion=2)


def _residual_network(
    name: str,
    shape: tuple[int, int, int, int],
    seed: int,
    stages: _Stages,
    groups: int = 1,
    expansion: int = _EXPANSION,
) -> onnx.ModelProto:
    graph = GraphBuilder(name, seed)
    x = graph.input("image", shape)
    x = _conv_bn(graph, x, (3, 64), 7, stride=2)
    x = graph.op("Relu", x)
    x = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for blocks, width, first_stride in stages:
        for block in range(blocks):
            stride, wide = first_stride if block == 0 else 1, width * expansion
            x = _bottleneck(graph, x, (channels, width, wide), stride, groups)
            channels = wide
    x = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
    graph.output(graph.gemm(x, (channels, 1000)), "logits", (shape[0], 1000))
    return graph.build()


def _bottleneck(
    graph: GraphBuilder, x: str, widths: tuple[int, int, int], stride: int, groups: int
) -> str:
    channels, width, out_channels = widths
    y = graph.op("Relu", _conv_bn(graph, x, (channels, width), 1))
    y = graph.op("Relu", _conv_bn(graph, y, (width, width), 3, stride=stride, groups=groups))
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
    groups: int = 1,
    scale: float = 1.0,
    gain: float = 2.0,
) -> str:
    y = graph.conv(x, channels, kernel, stride=stride, groups=groups, bias=False, gain=gain)
    return graph.batch_norm(y, channels[1], scale)
