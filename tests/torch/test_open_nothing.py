"""Results without elements whose other axes are open, as of codebooks that nothing chooses from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import byoc


class Emptied(nn.Module):
    """A part of width 0, as it is and joined to another."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nothing = torch.zeros(*x.shape[:2], 0, dtype=self.dtype)
        return torch.cat((nothing, x.sin()), -1) * 2, nothing, torch.stack((nothing, nothing), -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_nothing_of_an_open_length(tmp_path: Path, dtype: torch.dtype) -> None:
    module, path = Emptied(dtype).eval(), tmp_path / "m.so"
    report = byoc.compile(
        module, path, example_inputs=(torch.randn(2, 5, 8),),
        dynamic_shapes=({1: torch.export.Dim("n")},), min_bytes=0,
    ).report  # fmt: skip
    assert len(report.regions) == 1 and not report.left
    with byoc.load(path) as model:
        for length in (5, 3):
            x = torch.randn(2, length, 8)
            for found, wanted in zip(model(x), module(x), strict=True):
                torch.testing.assert_close(torch.from_numpy(found), wanted)
