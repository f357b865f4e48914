"""Sizes that conditions and ranges of a program settle: of one block, and of short axes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim as Axis

import byoc
from byoc.deploy.metadata import SymbolRange
from byoc.errors import InputError
from byoc.frontends.torch.settled_sizes import SettledSizes
from codegen_cc.dim import (
    Dim,
    above_zero,
    larger,
    normal,
    parse_dim,
    quotient,
    remainder,
    same,
    smaller,
    symbol,
)

N, M = symbol("n"), symbol("m")

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


class InBlocks(nn.Module):
    """Attention inside of blocks, to which a sequence is padded."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length = x.shape[:2]
        whole = self.project(F.pad(x, (0, 0, 0, -length % 8)))
        q, k, v = whole.reshape(batch, -1, 8, 48).chunk(3, -1)
        made = (q @ k.mT).softmax(-1) @ v
        return made.reshape(batch, -1, 16)[:, :length]


class AtMost(nn.Module):
    """Rows of a table that has no more than 24."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(24, 16))
        self.project = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.project(x) * self.rows[: x.shape[1]].sigmoid()


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize(
    ("build", "traced", "fitting", "refused"),
    [(InBlocks, 5, (8, 2), 9), (InBlocks, 12, (9, 32, 8), None), (AtMost, 7, (2, 24), 25)],
    ids=["one block", "several blocks", "at most"],
)
def test_a_sequence(
    build: type[nn.Module],
    traced: int,
    fitting: tuple[int, ...],
    refused: int | None,
    tmp_path: Path,
) -> None:
    """As many elements before a reshape as after it, for all lengths that the trace is of."""
    torch.manual_seed(5)
    module, path = build().eval(), tmp_path / "model.so"
    given, axes = (torch.randn(2, traced, 16),), ({0: Axis.AUTO, 1: Axis.AUTO},)
    report = byoc.compile(
        module, path, example_inputs=given, dynamic_shapes=axes, min_bytes=0
    ).report
    assert report.left == () and len(report.regions) == 1
    with byoc.load(path) as model:
        for length in (traced, *fitting):
            x = torch.randn(3, length, 16)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), module(x), **CLOSE)
        if refused is not None:
            with pytest.raises(InputError):
                model(torch.randn(3, refused, 16).numpy())


@pytest.mark.parametrize(
    ("condition", "given", "simplest"),
    [
        ("(n + (-n) % 8) // 8 == 1", normal(N + remainder(-N, 8)), 8),
        ("n // 4 + 1 == m", M + quotient(N, 4), 2 * M - 1),
        ("n <= m", smaller(N, M), N),
        ("n < m", larger(N, M), M),
        ("n > m", above_zero(N - M), N - M),
        ("n != 3", smaller(N, M), smaller(N, M)),
        ("(n + 3) // 4 == (n + 1) // 4", quotient(N + 3, 4), quotient(N + 3, 4)),
        ("n // 2 * m == 6", quotient(N, 2), quotient(N, 2)),
    ],
)
def test_conditions(condition: str, given: Dim, simplest: Dim) -> None:
    assert same(SettledSizes([condition]).of(given), simplest)


@pytest.mark.parametrize(
    ("least", "most", "given", "simplest"),
    [
        (0, 256, "n - Max(0, n - 256)", "n"),
        (0, 255, "3*Max(0, n - 256)", "0"),
        (16, None, "Max(0, n - 16)", "n - 16"),
        (16, None, "Max(0, n - 17)", "Max(0, n - 17)"),
        (0, 257, "Max(0, n - 256)", "Max(0, n - 256)"),
    ],
)
def test_ranges(least: int, most: int | None, given: str, simplest: str) -> None:
    ranges = [SymbolRange("n", least, most)]
    assert SettledSizes(ranges=ranges).of(parse_dim(given)) == parse_dim(simplest)
