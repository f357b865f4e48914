"""Axes that are declared as computed of another size, ``4 * Dim("n")``, where code asks sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim

import byoc
from byoc.errors import InputError


class Windows(nn.Module):
    """Shifts rows where there is more than one window of 4, as Swin does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] // 4 > 1:
            x = x.roll(1, 0)
        return (x * x.sigmoid()).cumsum(0)


class Thirds(nn.Module):
    """Asks for a number that a quotient must not be."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] // 3 % 2 == 1:
            return x.exp()
        return x.tanh() * 2


class Single(nn.Module):
    """Takes away an axis of 1, beside one that is computed."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.squeeze(1).exp().sum(0)


def compiled(module: nn.Module, path: Path, given: torch.Tensor, axes: dict[int, object]) -> None:
    report = byoc.compile(
        module.eval(), path, example_inputs=(given,), dynamic_shapes=(axes,), min_bytes=0
    ).report
    assert report.left == () and len(report.regions) == 1


@pytest.mark.parametrize(
    ("module", "axis", "needed"),
    [
        (Windows, 4 * Dim("n"), "4 * n // 4 > 1, where n = 1"),
        (Windows, 4 * Dim("n") + 4, r"\(4 \* n \+ 4\) // 4 > 1, where n = 0"),
        (Thirds, 4 * Dim("n"), "4 * n // 3 % 2 != 1, where n = 1"),
    ],
)
@torch.no_grad()
def test_what_code_asks_of_a_multiple(
    tmp_path: Path, module: type[nn.Module], axis: object, needed: str
) -> None:
    """The tracer supposes 2 or more of the size that no axis is, without a note of it."""
    path = tmp_path / "computed.so"
    compiled(module(), path, torch.randn(12, 5), {0: axis})
    with byoc.load(path) as model:
        for rows in (12, 8):
            x = torch.randn(rows, 5)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), module()(x))
        pattern = needed if "\\" in needed else needed.replace("*", r"\*")
        with pytest.raises(InputError, match=f"it needs {pattern}"):
            model(torch.randn(4, 5).numpy())


def test_single_rows_beside_a_multiple(tmp_path: Path) -> None:
    """The module is asked what it computes of one."""
    path = tmp_path / "single.so"
    compiled(Single(), path, torch.randn(8, 3), {0: 4 * Dim("n"), 1: Dim("b")})
    with byoc.load(path) as model, pytest.raises(InputError, match="b is 1 and must be 2 or more"):
        model(torch.randn(8, 1).numpy())


class Padded(nn.Module):
    """Halved and doubled, so that the axis is even, and asked whether padding would be needed."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        halves = x.reshape(-1, 2, 3).sum(1).repeat_interleave(2, 0) + x
        return halves.exp() if (3 - x.shape[0] % 3) % 3 > 0 else halves.tanh()


@pytest.mark.slow
@torch.no_grad()
def test_conditions_speak_of_axes(tmp_path: Path) -> None:
    """What the library counts in halves has no name that a caller knows."""
    path = tmp_path / "padded.so"
    compiled(Padded(), path, torch.randn(8, 3), {0: Dim("n")})
    with byoc.load(path) as model:
        x = torch.randn(4, 3)
        torch.testing.assert_close(torch.from_numpy(model(x.numpy())), Padded()(x))
        with pytest.raises(InputError, match="% 3 > 0, where x_0 = 6"):
            model(torch.randn(6, 3).numpy())
