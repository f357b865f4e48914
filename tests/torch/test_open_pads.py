"""Pads by widths that calls decide, and that are below 0 in some: these cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import byoc

N, M = (torch.export.Dim(name) for name in "nm")


class Fitted(nn.Module):
    """A sound is as long as another one, as asteroid's decoders leave it."""

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return F.pad(x.sin(), (0, other.shape[1] - x.shape[1]), value=1.5) * other


class AtTheBeginning(nn.Module):
    def forward(self, x: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sides = (other.shape[1] - x.shape[1], 3)
        return F.pad(x.sin(), sides, value=1.5) * 2, F.pad((x * 5).int(), sides) * 2


@pytest.mark.parametrize("module", [Fitted(), AtTheBeginning()])
def test_widths_below_none_cut_off(tmp_path: Path, module: nn.Module) -> None:
    path, example = tmp_path / "m.so", (torch.randn(3, 5), torch.randn(3, 9))
    axes = ({1: N}, {1: M})
    compiled = byoc.compile(
        module.eval(), path, example_inputs=example, dynamic_shapes=axes, min_bytes=0
    )
    assert len(compiled.report.regions) == 1 and not compiled.report.left
    with byoc.load(path) as model:
        for lengths in ((5, 9), (9, 5), (7, 7), (60, 2)):
            inputs = tuple(torch.randn(3, length) for length in lengths)
            wanted = module(*inputs)
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            found = model.run(dict(zip(("x", "other"), inputs, strict=True)))
            for made, right in zip(found.values(), wanted, strict=True):
                torch.testing.assert_close(torch.from_numpy(made), right)
