"""Sizes that are read from tensors and may be below 0 before something is done with them: numbers
of labels, where they are -1 beside an addition of 1, and lengths, the greater of them and 0."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import byoc


class Means(nn.Module):
    """The mean of the rows of each graph of a batch, as layers of graph networks read out."""

    def __init__(self, number: str) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.number = number

    def forward(self, x: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        greatest = batch.max()
        count = int(greatest) + 1 if self.number == "int" else greatest.item() + 1
        sums = torch.zeros(count, 8).index_add(0, batch, x)
        rows = torch.zeros(count).index_add(0, batch, torch.ones_like(batch, dtype=x.dtype))
        return self.layer(sums / rows.clamp(min=1)[:, None]) * count


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("number", ["int", "item"])
def test_numbers_of_labels(number: str, tmp_path: Path) -> None:
    module, library = Means(number).eval(), tmp_path / "means.so"
    rows = torch.export.Dim("rows")
    compiled = byoc.compile(
        module,
        library,
        example_inputs=(torch.randn(6, 8), torch.tensor([0, 0, 1, 1, 2, 2])),
        dynamic_shapes=({0: rows}, {0: rows}),
        min_bytes=0,
    )
    assert len(compiled.report.regions) == 2
    assert {entry.op for entry in compiled.report.left} == {"relax.tensor_to_shape"}
    with byoc.load(library) as model:
        for labels in ([0, 0, 1, 1, 2, 2], [0], [3, 0, 3, 1], [0, 5]):
            x, batch = torch.randn(len(labels), 8), torch.tensor(labels)
            found = torch.from_numpy(model(x.numpy(), batch.numpy()))
            torch.testing.assert_close(found, module(x, batch), rtol=1e-4, atol=1e-5)


class Lengthened(nn.Module):
    """Each row as many times as its length says, as networks from text to speech do it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        rows = enumerate(self.layer(x))
        return torch.cat([row.expand(max(int(lengths[i].item()), 0), -1) for i, row in rows])


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_lengths_not_below_0(dtype: torch.dtype, tmp_path: Path) -> None:
    module, library = Lengthened().eval(), tmp_path / "lengthened.so"
    given = (torch.randn(3, 8), torch.tensor([1, 2, 3], dtype=dtype))
    compiled = byoc.compile(module, library, example_inputs=given, min_bytes=0)
    assert len(compiled.report.regions) == 2
    assert {entry.op for entry in compiled.report.left} == {"relax.tensor_to_shape"}
    with byoc.load(library) as model:
        for lengths in ([1, 2, 3], [0, -2, 5], [2.75, -0.5, 0.25], [0, 0, 0]):
            x, counts = torch.randn(3, 8), torch.tensor(lengths, dtype=dtype)
            found = torch.from_numpy(model(x.numpy(), counts.numpy()))
            torch.testing.assert_close(found, module(x, counts), rtol=1e-4, atol=1e-5)
