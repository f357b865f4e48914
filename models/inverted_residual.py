"""Networks of inverted residual blocks (Sandler et al., 2018): wide inside, narrow outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx

from .builder import GraphBuilder


@dataclass(frozen=True)
class Stage:
    """Blocks of one width; the first of them has the stride."""

    expansion: int
    channels: int
    blocks: int
    stride: int
    kernel: int = 3


@dataclass(frozen=True)
class InvertedResiduals:
    """What such networks differ in.

    ``gate(graph, x, channels, squeezed)`` gives numbers that the wide image of a block is
    multiplied by, or there is none.
    """

    name: str
    stages: Sequence[Stage]
    activation: Callable[[GraphBuilder, str], str]
    gate: Callable[[GraphBuilder, str, int, int], str] | None = None

    def build(self, batch: int, size: int, seed: int) -> onnx.ModelProto:
        """Image [batch, 3, size, size] to logits [batch, 1000], BatchNormalization not folded."""
        graph = GraphBuilder(self.name, seed)
        x = graph.input("image", (batch, 3, size, size))
        x = self._conv(graph, x, (3, 32), 3, stride=2)
        channels = 32
        for stage in self.stages:
            for block in range(stage.blocks):
                x = self._block(graph, x, channels, stage, stage.stride if block == 0 else 1)
                channels = stage.channels
        x = self._conv(graph, x, (channels, 1280), 1)
        x = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
        graph.output(graph.gemm(x, (1280, 1000)), "logits", (batch, 1000))
        return graph.build()

    def _block(self, graph: GraphBuilder, x: str, channels: int, stage: Stage, stride: int) -> str:
        hidden = channels * stage.expansion
        y = x
        if stage.expansion != 1:
            y = self._conv(graph, y, (channels, hidden), 1)
        y = self._conv(graph, y, (hidden, hidden), stage.kernel, stride=stride, groups=hidden)
        if self.gate is not None:
            y = graph.op("Mul", self.gate(graph, y, hidden, max(1, channels // 4)), y)
        y = graph.conv(y, (hidden, stage.channels), 1, bias=False, gain=1.0)
        if stride == 1 and channels == stage.channels:
            return graph.op("Add", x, graph.batch_norm(y, stage.channels, 0.4))
        return graph.batch_norm(y, stage.channels)

    def _conv(
        self,
        graph: GraphBuilder,
        x: str,
        channels: tuple[int, int],
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
    ) -> str:
        """Convolution, BatchNormalization and activation."""
        y = graph.conv(x, channels, kernel, stride=stride, groups=groups, bias=False)
        return self.activation(graph, graph.batch_norm(y, channels[1]))
