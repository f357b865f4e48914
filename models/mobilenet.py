"""MobileNetV2 1.0 (Sandler et al., 2018)."""

from __future__ import annotations

import onnx

from .builder import GraphBuilder
from .inverted_residual import InvertedResiduals, Stage

_STAGES = (  # expansion, channels, blocks, first stride
    Stage(1, 16, 1, 1),
    Stage(6, 24, 2, 2),
    Stage(6, 32, 3, 2),
    Stage(6, 64, 4, 2),
    Stage(6, 96, 3, 1),
    Stage(6, 160, 3, 2),
    Stage(6, 320, 1, 1),
)


def mobilenet_v2(batch: int = 1, size: int = 224, seed: int = 2) -> onnx.ModelProto:
    """Image [batch, 3, size, size] to logits [batch, 1000], BatchNormalization not folded."""
    network = InvertedResiduals("mobilenet_v2", _STAGES, GraphBuilder.relu6)
    return network.build(batch, size, seed)
