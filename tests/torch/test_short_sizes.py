"""Sizes of layers with SAME padding, which PyTorch's tracer writes longer from layer to layer."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import byoc
from byoc.frontends.torch.program import exported

#: Any batch, height and width.
_OPEN = {0: torch.export.Dim("batch"), 2: torch.export.Dim("h"), 3: torch.export.Dim("w")}


class _Same(torch.nn.Module):
    """Convolutions that halve an image, padded as TensorFlow does it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = ((3, 8, 3), (8, 8, 5), (8, 8, 3), (8, 8, 3), (8, 8, 5))
        self.layers = torch.nn.ModuleList(torch.nn.Conv2d(a, b, k, 2) for a, b, k in layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            kernel = layer.kernel_size[0]
            pads = [max((math.ceil(n / 2) - 1) * 2 + kernel - n, 0) for n in x.shape[:1:-1]]
            x = layer(F.pad(x, [part for pad in pads for part in (pad // 2, pad - pad // 2)]))
        return x


class _Windows(torch.nn.Module):
    """Means of windows of 7 x 7, added to an image that need not be whole ones, and halved."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            batch, channels, height, width = x.shape
            right, below = ((7 - size % 7) % 7 for size in (width, height))
            padded = F.pad(x, (0, right, 0, below))
            windows = padded.view(batch, channels, padded.shape[2] // 7, 7, -1, 7)
            mean = windows.mean((3, 5), keepdim=True).expand(windows.shape)
            x = x + mean.reshape(padded.shape)[:, :, :height, :width]
            odd = ((2 - size % 2) % 2 for size in (width, height))
            x = F.max_pool2d(F.pad(x, [part for size in odd for part in (0, size)]), 2)
        return x


@pytest.mark.slow
@torch.no_grad()
def test_same_padding_layer_by_layer(tmp_path: Path) -> None:
    _check(_Same().eval(), torch.randn(2, 3, 64, 96), tmp_path / "same.so")


@pytest.mark.slow
@torch.no_grad()
def test_windows_that_need_not_fit(tmp_path: Path) -> None:
    _check(_Windows().eval(), torch.randn(2, 3, 340, 400), tmp_path / "windows.so")


def _check(module: torch.nn.Module, example: torch.Tensor, library: Path) -> None:
    """That sizes stay short to the end, and that the one region computes what PyTorch does."""
    program = exported(module, (example,), (_OPEN,)).exported
    traced = program.graph.nodes
    shapes = [n.meta["val"].shape for n in traced if isinstance(n.meta.get("val"), torch.Tensor)]
    assert len(str(shapes[-1][2])) < 30, shapes[-1]
    done = byoc.compile(program, library)
    assert len(done.report.regions) == 1 and done.report.left == ()
    with byoc.load(library) as model:
        for shape in ((2, 3, 90, 233), (3, 3, 197, 164), (2, 3, 131, 300)):
            x = torch.randn(shape)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), module(x))
