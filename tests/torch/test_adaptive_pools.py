"""Means of as many windows as a module wants, of fixed and of open sizes, beside PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import byoc

AUTO = torch.export.Dim.AUTO


class Pyramid(nn.Module):
    """A convolution, and means of its result at several scales, as PSPNet has them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 20, 3, padding=1)
        self.behind = nn.ModuleList(nn.Conv2d(20, 8, 1) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = self.first(x).relu()
        means = [F.adaptive_avg_pool2d(image, size) for size in (1, 3, (4, 5))]
        found = [conv(mean) for conv, mean in zip(self.behind, means, strict=True)]
        return torch.cat([mean.flatten(1) for mean in found], 1)


class Lines(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.adaptive_avg_pool1d(x.exp(), 3) * 2


class Volumes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.adaptive_avg_pool3d(x.exp(), (3, 2, 4)) * 2


#: A module, shapes that it is called with, and its open axes.
CASES = {
    "pyramid": (Pyramid, [(2, 3, 17, 22)], ()),
    "open_pyramid": (Pyramid, [(2, 3, 17, 22), (1, 3, 24, 15), (3, 3, 4, 5)], (0, 2, 3)),
    "lines": (Lines, [(2, 5, 10)], ()),
    "open_lines": (Lines, [(2, 5, 10), (1, 5, 4), (4, 5, 33)], (0, 2)),
    "volumes": (Volumes, [(2, 5, 7, 6, 9)], ()),
    "open_volumes": (Volumes, [(2, 5, 7, 6, 9), (1, 5, 3, 8, 5)], (0, 2, 3, 4)),
}


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_means_of_windows(name: str, tmp_path: Path) -> None:
    torch.manual_seed(5)
    kind, shapes, axes = CASES[name]
    module, library = kind().eval(), tmp_path / "pools.so"
    compiled = byoc.compile(
        module,
        library,
        example_inputs=(torch.randn(shapes[0]),),
        dynamic_shapes=({axis: AUTO for axis in axes},) if axes else None,
        min_bytes=0,
    )
    assert compiled.report.left == ()
    assert len(compiled.report.regions) == 1
    kinds = {node["composite"] for node in compiled.metadata.report["nodes"]}
    assert "ext.adaptive_avg_pool2d" in kinds
    with byoc.load(library) as model:
        for shape in shapes:
            x = torch.randn(shape)
            (found,) = model.run({model.inputs[0].name: x.numpy()}).values()
            torch.testing.assert_close(torch.from_numpy(found), module(x), rtol=1e-5, atol=1e-5)
