"""Axes that were left to PyTorch's tracer, which fixed them."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim

import byoc
from byoc.errors import AxesNote


class Fixing(nn.Module):
    """Adds a table of known length, and reshapes the second of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.ones(12, 3))

    def forward(self, x: torch.Tensor, parts: list[torch.Tensor]) -> torch.Tensor:
        made = x.exp() + self.table  # fixes x
        return made[:4] + parts[0] + parts[1].reshape(4, 1)  # fixes the parts


def test_the_compile_says_which_and_where(tmp_path: Path) -> None:
    given = (torch.rand(12, 3), [torch.rand(4, 3), torch.rand(4)])
    axes = ({0: Dim.AUTO}, [{0: Dim.AUTO}, (Dim.AUTO,)])
    module, path = Fixing().eval(), tmp_path / "fixed.so"
    lines = Path(__file__).read_text().splitlines()
    first = next(n for n, line in enumerate(lines, 1) if line.endswith("# fixes x"))
    told = (
        rf"fixed by the code: axis 0 of x is 12 \(.*test_fixed_axes.py, line {first}\); "
        rf"axis 0 of parts\[0\] is 4 \(.*, line {first + 1}\); axis 0 of parts\[1\] is 4 \("
    )
    with pytest.warns(AxesNote, match=told):
        done = byoc.compile(module, path, example_inputs=given, dynamic_shapes=axes)
    assert "axis 0 of x is 12" in done.report.axes
    assert done.report.left == () and len(done.report.regions) == 1


def test_an_example_of_one(tmp_path: Path) -> None:
    given, axes = {"x": torch.rand(1, 3)}, {"x": {0: Dim.AUTO, 1: Dim.AUTO}}
    with pytest.warns(AxesNote, match="axis 0 of x is 1, as the example's"):
        byoc.compile(
            Doubled().eval(),
            tmp_path / "one.so",
            example_inputs=given,
            dynamic_shapes=axes,
        )


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.tanh() * 2


def test_nothing_is_said_of_what_stays_open(tmp_path: Path) -> None:
    axes = ({0: Dim.AUTO, 1: Dim.STATIC},)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AxesNote)
        done = byoc.compile(
            Doubled().eval(),
            tmp_path / "open.so",
            example_inputs=(torch.rand(2, 3),),
            dynamic_shapes=axes,
        )
    assert done.report.axes == ""
