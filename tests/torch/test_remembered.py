"""Functions that remember what they made for a size, as those of masks in Video Swin and RetNet."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

import pytest
import torch
from torch import nn

import byoc
from byoc.errors import VerifyError

_KEPT: dict[int, torch.Tensor] = {}


@lru_cache(maxsize=2)
def _mask(length: int, *, device: torch.device) -> torch.Tensor:
    return torch.full((length, length), -1e9, device=device).triu(1)


class Masked(nn.Module):
    @cache  # noqa: B019
    def places(self, length: int) -> tuple[torch.Tensor, int]:
        return torch.arange(length)[:, None] / length, length

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places, length = self.places(x.shape[1])
        weights = x @ x.transpose(1, 2) + _mask(length, device=x.device) + places
        return weights.softmax(-1) @ x


class Kept(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if 4 not in _KEPT:
            _KEPT[4] = torch.arange(4) / 4
        return x.relu() * _KEPT[4]


@pytest.mark.parametrize("open_axes", [None, {0: torch.export.Dim("b"), 1: torch.export.Dim("n")}])
@torch.no_grad()
def test_functions_that_remember(open_axes: dict | None, tmp_path: Path) -> None:
    module, given, library = Masked().eval(), torch.randn(2, 6, 4), tmp_path / "masked.so"
    for _ in range(2):
        done = byoc.compile(
            module,
            library,
            example_inputs=(given,),
            dynamic_shapes=open_axes and (open_axes,),
            min_bytes=0,
        )
        assert len(done.report.regions) == 1 and done.report.left == ()
    with byoc.load(library) as model:
        for data in (given, torch.randn(3, 9, 4)) if open_axes else (given,):
            wanted = module(data)
            assert type(wanted) is torch.Tensor  # and none of the tracer's
            torch.testing.assert_close(torch.from_numpy(model(data)), wanted)


def test_dictionaries_that_keep_tensors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="keeps tensors from call to call"):
        byoc.compile(
            Kept().eval(),
            tmp_path / "kept.so",
            example_inputs=(torch.randn(2, 4),),
            dynamic_shapes=({0: torch.export.Dim("b")},),
            min_bytes=0,
        )
