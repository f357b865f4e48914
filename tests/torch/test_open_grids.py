"""Rows of numbers, as many as an open size says."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import hamming_window

import byoc

_OPEN = {1: torch.export.Dim("h"), 2: torch.export.Dim("w")}


def _places(x: torch.Tensor) -> torch.Tensor:
    """Each pixel, and where it lies."""
    sides = [torch.linspace(-1, 1, n, device=x.device) for n in x.shape[1:]]
    return torch.cat([x, *(grid[None] for grid in torch.meshgrid(*sides, indexing="ij"))])


def _turned(x: torch.Tensor) -> torch.Tensor:
    """A spatial transformer."""
    turn = torch.tensor([[[0.8, -0.3, 0.1], [0.3, 0.8, 0.0]]])
    grid = F.affine_grid(turn, [1, *x.shape], align_corners=False)
    return F.grid_sample(x[None], grid, align_corners=False)


def _windows(x: torch.Tensor) -> torch.Tensor:
    """Each row under another window; one of a single element is 1."""
    count = x.shape[2]
    rows = [torch.hann_window(count), torch.hamming_window(count, False, 0.6, beta=0.3)]
    rows += [hamming_window(count, True, 0.6), torch.blackman_window(count)]
    return x * torch.stack([*rows, torch.bartlett_window(count, False)])[:, None]


def _frequencies(x: torch.Tensor) -> torch.Tensor:
    slopes = torch.fft.fftfreq(x.shape[2], 0.1) * torch.fft.rfftfreq(2 * x.shape[2] - 1)
    return x * slopes * torch.logspace(-1, math.log2(x.shape[2]), x.shape[2], base=2.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "compute",
    [
        _places,
        _turned,
        _windows,
        _frequencies,
        lambda x: x * torch.linspace(0.5 / x.shape[2], 1 - 0.5 / x.shape[2], steps=x.shape[2]),
        lambda x: x[:, torch.linspace(0, x.shape[1] - 1, 5).long()],
    ],
    ids=["places", "turned", "windows", "frequencies", "centres", "chosen"],
)
@torch.no_grad()
def test_sizes_stay_open(compute: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp(compute(x))

    torch.manual_seed(0)
    module = Module().eval()
    done = byoc.compile(
        module, tmp_path / "m.so", example_inputs=(torch.rand(5, 6, 16),), dynamic_shapes=(_OPEN,)
    )
    assert done.report.left == () and len(done.report.regions) == 1
    compiled = byoc.load(tmp_path / "m.so")
    for shape in ((5, 6, 16), (5, 7, 5), (5, 20, 2), (5, 3, 1)):
        x = torch.rand(shape)
        torch.testing.assert_close(torch.from_dlpack(compiled(x)), module(x), atol=1e-5, rtol=1e-5)


class Chosen(torch.nn.Module):
    """Rows that are spread over all, by whole numbers and by powers of 2."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = x.shape[1]
        even = torch.linspace(0, count - 1, 5, dtype=torch.int64)
        steps = torch.linspace(2, 9, count, dtype=torch.int32)
        powers = torch.logspace(0, 3, count, base=2, dtype=torch.int64)
        return x[:, even].exp() + (steps * powers)[-1]


@pytest.mark.slow
@torch.no_grad()
def test_whole_numbers(tmp_path: Path) -> None:
    """PyTorch computes these in float64, which TVM does before the region."""
    path, module = tmp_path / "m.so", Chosen().eval()
    done = byoc.compile(
        module, path, example_inputs=(torch.rand(5, 6, 16),), dynamic_shapes=({1: _OPEN[1]},)
    )
    assert len(done.report.regions) == 1
    compiled = byoc.load(path)
    for rows in (6, 1, 2, 22, 50):
        x = torch.rand(5, rows, 16)
        torch.testing.assert_close(torch.from_dlpack(compiled(x)), module(x))
