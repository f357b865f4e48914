"""Places in tables whose sides are open sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import byoc
from byoc.frontends.torch.open_places import lower_half, upper_half

_OPEN = {0: torch.export.Dim("b"), 1: torch.export.Dim("n")}


def _pairs(x: torch.Tensor) -> torch.Tensor:
    """Products of every two columns, as factorisation machines have them."""
    rows, columns = torch.triu_indices(x.shape[1], x.shape[1], 1)
    return x[:, rows] * x[:, columns]


def _halves(x: torch.Tensor) -> torch.Tensor:
    table = x[:, :, None] * x[:, None]
    rows, columns = torch.tril_indices(x.shape[1], x.shape[1], -1)
    whole = torch.tril_indices(x.shape[1], x.shape[1])
    return torch.cat([table[:, rows, columns], table[:, whole[0], whole[1]]], 1)


def _labelled(x: torch.Tensor) -> torch.Tensor:
    labels = (x * x.shape[1]).long().clamp(0, x.shape[1] - 1)
    return F.one_hot(labels, num_classes=x.shape[1]) * x[..., None]


def _causal(x: torch.Tensor) -> torch.Tensor:
    """The last rows see what is before them, as Perceiver AR's do."""
    count = x.shape[1]
    hidden = torch.ones(2, count, dtype=torch.bool).triu(count - 1)
    return x[:, -2:, None] * torch.ones(2, count).tril(count - 2).masked_fill(hidden, -1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "compute",
    [
        _pairs,
        _causal,
        _halves,
        _labelled,
        lambda x: torch.combinations(x[0], with_replacement=True),
        lambda x: F.pdist(x.mT),
        lambda x: F.max_pool2d(x[:, None], (1, 2), return_indices=True)[1] / x.numel(),
        lambda x: x / torch.as_tensor(x.shape[1], dtype=torch.float32),
        lambda x: torch.cdist(x[..., None], x[:, :2, None] + 1),
        lambda x: torch.vander(x[0], x.shape[1]) + torch.vander(x[1], x.shape[1], True),
    ],
    ids=[
        *(
            "pairs",
            "causal",
            "halves",
            "labelled",
            "combinations",
            "distances",
            "greatest",
            "number",
        ),
        *("points", "powers"),
    ],
)
@torch.no_grad()
def test_sizes_stay_open(compute: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp(compute(x))

    torch.manual_seed(0)
    module = Module().eval()
    done = byoc.compile(
        module, tmp_path / "m.so", example_inputs=(torch.rand(2, 6),), dynamic_shapes=(_OPEN,)
    )
    assert done.report.left == () and len(done.report.regions) == 1
    compiled = byoc.load(tmp_path / "m.so")
    for shape in ((2, 6), (3, 11), (2, 40), (5, 2)):
        x = torch.rand(shape)
        torch.testing.assert_close(torch.from_dlpack(compiled(x)), module(x), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2500])
def test_halves_of_large_squares(count: int) -> None:
    """The root of floats is mended by whole numbers."""
    for offset in (0, 1, 7):
        upper, lower = (count, count, offset), (count, count, -offset)
        assert torch.equal(upper_half(*upper), torch.triu_indices(*upper))
        assert torch.equal(lower_half(*lower), torch.tril_indices(*lower))


def test_least_counts_that_sizes_decide(tmp_path: Path) -> None:
    class Counts(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.bincount(x[0], minlength=x.shape[1]) * 2

    axes, x = ({0: torch.export.Dim("b"), 1: torch.export.Dim("n")},), torch.arange(12).view(2, 6)
    byoc.compile(Counts().eval(), tmp_path / "m.so", example_inputs=(x,), dynamic_shapes=axes)
    compiled = byoc.load(tmp_path / "m.so")
    for given in (x, torch.tensor([[0, 9, 0], [1, 1, 1]]), torch.zeros(1, 7, dtype=torch.int64)):
        assert torch.equal(torch.from_dlpack(compiled(given)), Counts()(given))
