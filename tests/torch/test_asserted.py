"""What a module checks of its data is left out; what decides between two answers is refused.

PYTEST_DONT_REWRITE: pytest would make other code of the assertions below.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim

import byoc
from byoc.errors import ModelError


class Asserting(nn.Module):
    """Every form of an assertion, and a scalar buffer that decides what is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("stride", torch.tensor(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = nn.functional.pad(x, (1, 2), mode="reflect")
        assert (padded[..., 1:-2] == x).all()
        assert not padded.isnan().any(), "need numbers"
        assert x.shape[0] > 0 and (x < 9).all()
        assert (x >= 0).all() or (x < 0).all(), "need one sign"
        return padded[..., :: int(self.stride)] * (2 if self.stride > 1 else 3)


class Raising(nn.Module):
    """Every form of a check that raises an error of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.min(x) < 0 or torch.max(x) > 9:
            raise ValueError(f"from {x.min()} to {x.max()}")
        with torch.no_grad():
            if not torch.isfinite(x).all():
                message = "need numbers"
                raise FloatingPointError(message)
        for row in (x, x + 1):
            if row.isnan().any():
                raise KeyError
        if (x < 8).all():
            return x.exp() + 1
        else:
            raise ValueError


class Deciding(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x > 0).all():
            x = x * 2
        assert (x < 9).all()
        return x + 1


class Catching(nn.Module):
    """An error that decides what is computed, raised here or below."""

    def __init__(self, below: bool) -> None:
        super().__init__()
        self.below = below

    def checked(self, x: torch.Tensor) -> torch.Tensor:
        if (x < 0).any():
            raise ValueError
        return x.sqrt()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            if self.below:
                return self.checked(x)
            if (x < 0).any():
                raise ValueError
            return x.sqrt()
        except ValueError:
            return x + 1


@torch.no_grad()
@pytest.mark.parametrize("kind", [Asserting, Raising])
@pytest.mark.parametrize("axes", [None, ({0: Dim.AUTO, 1: Dim.AUTO},)])
def test_what_is_checked_is_left_out(kind: type[nn.Module], axes: object, tmp_path: Path) -> None:
    module, path = kind().eval(), tmp_path / "m.so"
    report = byoc.compile(
        module, path, example_inputs=(torch.rand(3, 8),), dynamic_shapes=axes, min_bytes=0
    ).report
    assert report.left == () and len(report.regions) == 1
    with byoc.load(path) as model:
        for shape in ((3, 8), *([(2, 11)] if axes else [])):
            x = torch.rand(shape)
            torch.testing.assert_close(torch.from_numpy(model(x)), module(x))


@pytest.mark.parametrize("module", [Deciding(), Catching(False), Catching(True)])
def test_what_data_decide_is_refused(
    module: nn.Module, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And the graphs that PyTorch's tracer has half are not written between."""
    with pytest.raises(ModelError, match="control flow depends on the data of a tensor"):
        byoc.compile(module.eval(), tmp_path / "m.so", example_inputs=(torch.rand(3),))
    assert capfd.readouterr() == ("", "")


def test_fixed_sizes_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's tracer logs hundreds, of the attempts that follow the code otherwise."""
    written: list[logging.LogRecord] = []
    for name in ("torch._guards", "torch.fx.experimental.symbolic_shapes"):
        monkeypatch.setattr(logging.getLogger(name), "handle", written.append)

    class Summed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows, columns = torch.triu_indices(x.shape[1], x.shape[1], 1)
            pairs = x[:, rows].exp() * x[:, columns]
            return pairs.sum(1) + sum(x[:, place] for place in range(x.shape[1]))

    with pytest.raises(ModelError, match="specialized it to be a constant"):
        byoc.compile(
            Summed().eval(),
            tmp_path / "m.so",
            example_inputs=(torch.rand(3, 8),),
            dynamic_shapes=({1: Dim("n")},),
        )
    assert written == []


def test_nothing_is_written_of_a_program_that_fails_for_one_row(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Divided(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.exp() * (1.0 / (x.shape[0] - 1))

    shapes = ({0: Dim("n")},)
    byoc.compile(
        Divided().eval(),
        tmp_path / "m.so",
        example_inputs=(torch.rand(3, 8),),
        dynamic_shapes=shapes,
    )
    assert capfd.readouterr() == ("", "")
