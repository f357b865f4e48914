"""Sizes of layers with SAME padding, which PyTorch's tracer writes longer from layer to layer."""

from __future__ import annotations

import math
from pathlib import Path

import torch
import torch.nn.functional as F

import byoc
from byoc.frontends.torch.program import exported

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


@torch.no_grad()
def test_same_padding_layer_by_layer(tmp_path: Path) -> None:
    module, example = _Same().eval(), (torch.randn(2, 3, 64, 96),)
    traced = exported(module, example, (_OPEN,)).exported.graph.nodes
    (*_, height, _) = [n for n in traced if "conv2d" in n.name][-1].meta["val"].shape
    assert len(str(height)) < 30, height
    library = tmp_path / "same.so"
    shapes = (_OPEN,)
    done = byoc.compile(module, library, example_inputs=example, dynamic_shapes=shapes)
    assert len(done.report.regions) == 1 and done.report.left == ()
    with byoc.load(library) as model:
        for shape in ((1, 3, 1, 33), (3, 3, 97, 64), (2, 3, 31, 200)):
            x = torch.randn(shape)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), module(x))
