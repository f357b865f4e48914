"""Slices that begin as many places before the end as another tensor has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import byoc

Forward = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _summed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y + x[..., -y.shape[-1] :]


def _stepped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x[..., -y.shape[-1] :: 2] * 2


def _written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    whole = x.clone()
    whole[..., -y.shape[-1] :] = y
    return whole * 2


class Causal(nn.Module):
    """As WaveNet has it: a convolution without padding, which gives fewer places."""

    def __init__(self, forward: Forward, dilation: int) -> None:
        super().__init__()
        self.layer = nn.Conv1d(4, 4, 2, dilation=dilation)
        self.combined = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.combined(x, self.layer(x))


@pytest.mark.parametrize("dilation", [1, 4])
@pytest.mark.parametrize("forward", [_summed, _stepped, _written])
@torch.no_grad()
def test_as_many_as_another_has(forward: Forward, dilation: int, tmp_path: Path) -> None:
    module, library = Causal(forward, dilation).eval(), tmp_path / "causal.so"
    given, axes = torch.randn(2, 4, 20), {2: torch.export.Dim("length")}
    done = byoc.compile(
        module,
        library,
        example_inputs=(given,),
        dynamic_shapes=(axes,),
        verify=False,
        min_bytes=0,
    )
    assert len(done.report.regions) == 1 and done.report.left == ()
    with byoc.load(library) as model:
        for length in (20, 33, 9):
            x = torch.randn(2, 4, length)
            torch.testing.assert_close(torch.from_numpy(model(x)), module(x), rtol=1e-5, atol=1e-5)
