"""Pools of open images: those whose number of windows is rounded up, and adaptive ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import byoc
from byoc.errors import InputError


class Pools(nn.Module):
    """Windows that meet, and that lie over one another."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = x.sin()
        return {
            "greatest": F.max_pool2d(x, 2, ceil_mode=True),
            "over": F.max_pool2d(x, 3, 2, ceil_mode=True),
            "dilated": F.max_pool2d(x, 2, 2, dilation=2, ceil_mode=True),
            "mean": F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            "inner_mean": F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            "sum": F.avg_pool2d(x, 3, 2, ceil_mode=True, divisor_override=2),
        }


@pytest.mark.slow
@torch.no_grad()
def test_pools_of_an_open_image(tmp_path: Path) -> None:
    torch.manual_seed(3)
    path, example = tmp_path / "pools.so", (torch.randn(2, 3, 12, 15),)
    axes = ({2: Dim.AUTO, 3: Dim.AUTO},)
    report = byoc.compile(
        Pools().eval(), path, example_inputs=example, dynamic_shapes=axes, min_bytes=0
    ).report
    assert report.left == () and len(report.regions) == 1
    with byoc.load(path) as model:
        assert model.metadata.conditions == ()
        for height in range(4, 12):
            x = torch.randn(2, 3, height, 30 - height)
            found = model.run({"x": x.numpy()})
            for name, wanted in Pools()(x).items():
                made = torch.from_numpy(found[name])
                torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-6)


class Apart(nn.Module):
    """Windows the last of which may begin behind the image: PyTorch's tracer looks whether."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x.sin(), 2, 3, ceil_mode=True)


@torch.no_grad()
def test_windows_behind_the_image(tmp_path: Path) -> None:
    path, example = tmp_path / "apart.so", (torch.randn(2, 3, 12, 16),)
    axes = ({2: Dim.AUTO, 3: Dim.AUTO},)
    report = byoc.compile(
        Apart().eval(), path, example_inputs=example, dynamic_shapes=axes, min_bytes=0
    ).report
    assert report.left == () and len(report.regions) == 1
    with byoc.load(path) as model:
        for shape in ((2, 3, 9, 10), (2, 3, 15, 8)):
            x = torch.randn(shape)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), Apart()(x))
        with pytest.raises(InputError, match="it needs"):
            model(torch.randn(2, 3, 10, 16).numpy())


class Adaptive(nn.Module):
    """As many windows as are wanted, of uneven sizes, some of which share lines."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = x.sin()
        return {
            "means": F.adaptive_avg_pool2d(x, (3, 6)),
            "one": F.adaptive_avg_pool2d(x, (1, 2)),
            "all": F.adaptive_avg_pool2d(x, 1),
            "greatest": F.adaptive_max_pool2d(x, (4, 3)),
            "lines": F.adaptive_avg_pool1d(x[:, 0], 5),
            "of_half": F.adaptive_avg_pool2d(F.avg_pool2d(x, 2), 6),
        }


@pytest.mark.slow
@torch.no_grad()
def test_adaptive_pools_of_an_open_image(tmp_path: Path) -> None:
    """Images smaller than the number of windows as well: those repeat lines then."""
    path, example = tmp_path / "adaptive.so", (torch.randn(2, 3, 12, 15),)
    axes = ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},)
    report = byoc.compile(
        Adaptive().eval(), path, example_inputs=example, dynamic_shapes=axes, min_bytes=0
    ).report
    assert report.left == () and len(report.regions) == 1
    with byoc.load(path) as model:
        for height in (12, 4, 5, 7, 29):
            x = torch.randn(3, 3, height, 33 - height)
            found = model.run({"x": x.numpy()})
            for name, wanted in Adaptive()(x).items():
                made = torch.from_numpy(found[name])
                torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-6)
