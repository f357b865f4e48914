"""Comparisons of float64 with NaN, which TVM computes as there are no kernels."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import byoc

_GIVEN = [[1.0, torch.nan, 2.0, -0.0], [torch.inf, -torch.inf, 0.0, 1.0], [torch.nan] * 4]


class Unequal(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "number": x != 0,
            "itself": x != x,
            "other": x != x.flip(1),
            "counted": (x != 1).sum(1),
            "chosen": torch.where(x != x, 9.0, x),
            "mean": x.nanmean(1),
            "norm": torch.linalg.vector_norm(x, 0, 1),
        }


def test_nan_differs_from_all(tmp_path: Path) -> None:
    module, x = Unequal().eval(), torch.tensor(_GIVEN, dtype=torch.float64)
    byoc.compile(module, tmp_path / "net.so", example_inputs=(x,), verify=False)
    found = byoc.load(tmp_path / "net.so").run({"x": x.numpy()})
    for name, wanted in module(x).items():
        made = torch.from_numpy(found[name])
        torch.testing.assert_close(made, wanted, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}")
