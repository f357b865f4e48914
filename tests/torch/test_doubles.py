"""Comparisons of float64 with NaN, which TVM computes as there are no kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
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


class Ordered(nn.Module):
    """The greater, the greatest and the order of numbers of which some are none."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = x.flip(1)
        made = {
            "greater": torch.maximum(x, y),
            "less": torch.minimum(x, y),
            "clamped": x.clamp(-0.5, 1.5),
            "crossed": x.clamp(2.0, -1.0),
            "relu": torch.relu(x),
            "elu": torch.nn.functional.elu(x),
            "greatest": x.amax(0),
            "least": x.amin(),
            "norm": torch.linalg.vector_norm(x, torch.inf, 1),
            "median": x.nanmedian(1)[0],
            "places": x.argsort(dim=1, stable=True),
            "argmin": x.argmin(1),
            "argmax": x.argmax(),
        }
        ways = {"max": x.max(1), "sorted": x.sort(dim=1, descending=True, stable=True)}
        ways |= {"topk": x.topk(2, 1), "first": x.kthvalue(4, 1)}
        return made | {name: way[0] for name, way in ways.items()} | {"place": ways["max"][1]}


@pytest.mark.slow
@pytest.mark.parametrize("network", [Unequal, Ordered])
def test_nan_differs_from_all_and_is_the_greatest(network: type[nn.Module], tmp_path: Path) -> None:
    module, x = network().eval(), torch.tensor(_GIVEN, dtype=torch.float64)
    byoc.compile(module, tmp_path / "net.so", example_inputs=(x,), verify=False)
    found = byoc.load(tmp_path / "net.so").run({"x": x.numpy()})
    for name, wanted in module(x).items():
        made = torch.from_numpy(found[name])
        torch.testing.assert_close(made, wanted, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}")
