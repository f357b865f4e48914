"""ConvNeXt-T (Liu et al., 2022), written as exporters write it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from .builder import GraphBuilder


def convnext(
    depths: Sequence[int] = (3, 3, 9, 3),
    widths: Sequence[int] = (96, 192, 384, 768),
    size: int = 224,
    batch: int = 1,
    seed: int = 17,
) -> onnx.ModelProto:
    """Image [batch, 3, size, size] to logits [batch, 1000]."""
    graph = GraphBuilder("convnext", seed)
    x = graph.input("image", (batch, 3, size, size))
    x = graph.conv(x, (3, widths[0]), 4, stride=4, padding=0, gain=1.0)
    x = _norm_of_channels(graph, x, widths[0])
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        if stage > 0:
            before = widths[stage - 1]
            x = _norm_of_channels(graph, x, before)
            x = graph.conv(x, (before, width), 2, stride=2, padding=0, gain=1.0)
        for _ in range(depth):
            x = _block(graph, x, width)
    x = graph.op("GlobalAveragePool", x)
    x = graph.op("Flatten", _norm_of_channels(graph, x, widths[-1]), axis=1)
    graph.output(graph.gemm(x, (widths[-1], 1000)), "logits", (batch, 1000))
    return graph.build()


def _norm_of_channels(graph: GraphBuilder, x: str, channels: int) -> str:
    """LayerNormalization over the channels of an NCHW image."""
    last = graph.op("Transpose", x, perm=[0, 2, 3, 1])
    return graph.op("Transpose", graph.layer_norm(last, channels), perm=[0, 3, 1, 2])


def _block(graph: GraphBuilder, x: str, width: int) -> str:
    """Depthwise 7x7, normalisation, two linear layers with GELU between, layer scale, residual."""
    y = graph.conv(x, (width, width), 7, groups=width, gain=1.0)
    y = graph.layer_norm(graph.op("Transpose", y, perm=[0, 2, 3, 1]), width)
    y = graph.gelu(graph.linear(y, (width, 4 * width)))
    y = graph.linear(y, (4 * width, width))
    gamma = graph.constant(np.full(width, 0.3, np.float32), "gamma")
    y = graph.op("Transpose", graph.op("Mul", gamma, y), perm=[0, 3, 1, 2])
    return graph.op("Add", x, y)
