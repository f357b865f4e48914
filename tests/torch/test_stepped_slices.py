"""Every second or third place of an open axis, written anew."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim

import byoc


class Stepped(nn.Module):
    """To the end of an axis, from a place before it, and up to one."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        woven, ends, middle = torch.zeros_like(x), x.exp(), x.sin()
        woven[:, 1::2] = y.tanh()
        woven[:, ::2] = x[:, ::2]
        ends[-5::2] = 1.0
        middle[2:-3:3, 1:4] = -2.0
        return {"woven": woven, "ends": ends, "middle": middle}


@pytest.mark.slow
@torch.no_grad()
def test_every_second_place_of_an_open_axis(tmp_path: Path) -> None:
    torch.manual_seed(3)
    module, path = Stepped().eval(), tmp_path / "stepped.so"
    given = torch.randn(12, 9), torch.randn(12, 4)
    axes = tuple(dict.fromkeys((0, 1), Dim.AUTO) for _ in given)
    report = byoc.compile(
        module, path, example_inputs=given, dynamic_shapes=axes, min_bytes=0
    ).report
    assert report.left == () and len(report.regions) == 1
    with byoc.load(path) as model:
        for rows, columns in ((12, 9), (7, 8), (30, 15), (6, 5)):
            x, y = torch.randn(rows, columns), torch.randn(rows, columns // 2)
            found = model.run({"x": x.numpy(), "y": y.numpy()})
            for name, wanted in module(x, y).items():
                made = torch.from_numpy(found[name])
                torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-6)


class Skewed(nn.Module):
    """Distances of places in place of places, as attention of VITS and Music Transformer has it."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        rows, n, width = x.shape
        y = x @ x.mT
        x = x @ torch.cos(torch.arange(2 * n - 1) * torch.arange(width)[:, None])
        flat = nn.functional.pad(nn.functional.pad(x, (0, 1)).reshape(rows, 2 * n * n), (0, n - 1))
        padded = nn.functional.pad(y, (0, n - 1)).reshape(rows, n * (2 * n - 1))
        return {
            "places": flat.view(rows, n + 1, 2 * n - 1)[:, :n, n - 1 :] * 2,
            "distances": nn.functional.pad(padded, (n, 0)).view(rows, n, 2 * n)[:, :, 1:] + 1,
        }


@pytest.mark.slow
@torch.no_grad()
def test_slices_that_begin_before_the_last_place(tmp_path: Path) -> None:
    module, path, rows, n = Skewed().eval(), tmp_path / "skewed.so", Dim("rows"), Dim("n")
    given, axes = (torch.randn(2, 6, 4),), ({0: rows, 1: n},)
    report = byoc.compile(
        module, path, example_inputs=given, dynamic_shapes=axes, min_bytes=0
    ).report
    assert report.left == () and len(report.regions) == 1
    with byoc.load(path) as model:
        for batch, size in ((2, 6), (3, 9), (1, 2)):
            x = torch.randn(batch, size, 4)
            found = model.run({"x": x.numpy()})
            for name, wanted in module(x).items():
                made = torch.from_numpy(found[name])
                torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-5)


class Biased(nn.Module):
    """The last rows and columns of a buffer, as many as there are places, as ALiBi takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bias", torch.arange(144.0).view(12, 12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The rows, and of each the sum with its bias."""
        n = x.shape[1]
        return x + self.bias[-n:, -n:] * 0.1


@torch.no_grad()
def test_the_last_rows_and_columns_of_a_buffer(tmp_path: Path) -> None:
    module, path = Biased().eval(), tmp_path / "biased.so"
    axes = ({1: Dim.AUTO, 2: Dim.AUTO},)
    report = byoc.compile(
        module, path, example_inputs=(torch.randn(3, 8, 8),), dynamic_shapes=axes, min_bytes=0
    ).report
    assert report.left == () and len(report.regions) == 1
    with byoc.load(path) as model:
        for n in (12, 7, 2, 1):
            x = torch.randn(3, n, n)
            torch.testing.assert_close(torch.from_numpy(model(x)), module(x))


class Turned(nn.Module):
    """The first features are turned, the others, of which there are none, stay."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, rest = x[..., :8], x[..., 8:]
        return torch.cat((first.sin() * 2, rest), -1) + 1


@torch.no_grad()
def test_a_part_of_nothing_is_not_joined(tmp_path: Path) -> None:
    module, path, axes = Turned().eval(), tmp_path / "turned.so", ({1: Dim.AUTO},)
    report = byoc.compile(
        module, path, example_inputs=(torch.randn(2, 5, 8),), dynamic_shapes=axes, min_bytes=0
    ).report
    assert report.left == () and len(report.regions) == 1
    with byoc.load(path) as model:
        for n in (5, 3):
            x = torch.randn(2, n, 8)
            torch.testing.assert_close(torch.from_numpy(model(x)), module(x))
