"""Sizes that code computes with floats and rounds, at several sizes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import byoc
from byoc.errors import UnsupportedForm

AUTO = torch.export.Dim.AUTO


def _compiled(module: torch.nn.Module, length: int, folder: Path) -> byoc.Model:
    """The library of two rows of any length, which is one region and nothing else."""
    library, example = folder / "rows.so", torch.randn(2, length)
    compiled = byoc.compile(
        module.eval(),
        library,
        example_inputs=(example,),
        dynamic_shapes=({1: AUTO},),
        min_bytes=0,
    )
    assert len(compiled.report.regions) == 1 and compiled.report.left == ()
    return byoc.load(library)


class _Rounded(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        n = x.shape[1]
        return {
            "blocks": F.pad(x, (0, math.ceil(n / 4) * 4 - n)).reshape(2, -1, 4).sum(1),
            "third": x[:, : math.floor(n / 3)] * 2,
            "half": x[:, : math.ceil(n * 0.5) - 1] * 2,
            "wide": x[:, : math.ceil(n / 1.5)] * 2,
            "falling": torch.arange(n - 1, -n, -1.0) * 2,
            "in_steps": torch.arange(0.5, n, 1.5) * 2,
        }


@pytest.mark.slow
@torch.no_grad()
def test_rounded_sizes(tmp_path: Path) -> None:
    with _compiled(_Rounded(), 14, tmp_path) as model:
        for n in (14, 3, 4, 5, 9, 12, 25, 64):
            x = torch.randn(2, n)
            found = model.run({"x": x.numpy()})
            for name, wanted in _Rounded()(x).items():
                torch.testing.assert_close(torch.from_numpy(found[name]), wanted)


class _Frames(torch.nn.Module):
    """Steps that are padded to whole frames, as EnCodec's convolutions are."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for stride in (2, 1, 5, 1, 3):
            count = x.shape[1]
            frames = math.ceil((count - stride) / stride + 1)
            extra = frames * stride - count
            if extra > 4:
                extra = 0
            x = F.pad(x, (0, extra)).reshape(2, -1, stride).tanh().sum(2)
        return x


@pytest.mark.slow
@torch.no_grad()
def test_frames_of_frames(tmp_path: Path) -> None:
    """Whole numbers beside a quotient by 5; conditions of many roundings are quick to write."""
    with _compiled(_Frames(), 47, tmp_path) as model:
        for n in (47, 60, 61, 62, 71, 99, 150):
            x = torch.randn(2, n)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), _Frames()(x))


class _Inexact(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, : math.ceil(x.shape[1] * 0.7)] * 2


def test_products_that_floats_round_are_refused(tmp_path: Path) -> None:
    """0.7 times 10 is 7.000000000000001 or 6.999999999999999, by how it is computed."""
    with pytest.raises(UnsupportedForm, match=r"a size of CeilToInt\(0\.7"):
        byoc.compile(
            _Inexact().eval(),
            tmp_path / "inexact.so",
            example_inputs=(torch.randn(2, 14),),
            dynamic_shapes=({1: AUTO},),
        )
