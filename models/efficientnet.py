"""EfficientNet-B0 (Tan and Le, 2019): SiLU, and gates per channel (squeeze and excitation)."""

from __future__ import annotations

import onnx

from .builder import GraphBuilder
from .inverted_residual import InvertedResiduals, Stage

_STAGES = (  # expansion, channels, blocks, first stride, kernel
    Stage(1, 16, 1, 1, 3),
    Stage(6, 24, 2, 2, 3),
    Stage(6, 40, 2, 2, 5),
    Stage(6, 80, 3, 2, 3),
    Stage(6, 112, 3, 1, 5),
    Stage(6, 192, 4, 2, 5),
    Stage(6, 320, 1, 1, 3),
)


def efficientnet_b0(batch: int = 1, size: int = 224, seed: int = 19) -> onnx.ModelProto:
    """Image [batch, 3, size, size] to logits [batch, 1000], BatchNormalization not folded."""
    network = InvertedResiduals("efficientnet_b0", _STAGES, GraphBuilder.silu, _gate)
    return network.build(batch, size, seed)


def _gate(graph: GraphBuilder, x: str, channels: int, squeezed: int) -> str:
    """Per channel, a number in (0, 1) that depends on the means of all channels."""
    y = graph.op("GlobalAveragePool", x)
    y = graph.silu(graph.conv(y, (channels, squeezed), 1))
    return graph.op("Sigmoid", graph.conv(y, (squeezed, channels), 1))
