"""Reshapes that drop elements, or want more, at some sizes: refused there, as PyTorch does it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import byoc
from byoc.errors import InputError, RunError


class Pairs(nn.Module):
    """Rows by twos, after a kernel or before one."""

    def __init__(self, after: bool) -> None:
        super().__init__()
        self.after = after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = (torch.tanh(x) if self.after else x).view(x.shape[0] // 2, -1)
        return pairs if self.after else torch.sigmoid(pairs)


@pytest.mark.slow
@pytest.mark.parametrize("after", [True, False])
def test_rows_by_twos(tmp_path: Path, after: bool) -> None:
    module, x = Pairs(after).eval(), torch.randn(8, 400)
    path = tmp_path / "pairs.so"
    report = byoc.compile(module, path, example_inputs=(x,), dynamic_shapes=({0: Dim.AUTO},)).report
    assert len(report.regions) == 1 and not report.left
    model = byoc.load(path)
    for rows in (8, 6, 2):
        x = torch.randn(rows, 400)
        (found,) = model.run({"x": x.numpy()}).values()
        np.testing.assert_allclose(found, module(x).numpy(), atol=1e-6)
    refused = {
        7: (InputError, r"it needs 400 \* s\d+ % \(s\d+ // 2\) == 0"),
        1: (RunError, "inside the network would be 400; pass other inputs"),
    }
    for rows, (kind, told) in refused.items():
        x = torch.randn(rows, 400)
        with pytest.raises(RuntimeError):
            module(x)
        with pytest.raises(kind, match=told):
            model.run({"x": x.numpy()})


class Chunked(nn.Module):
    """Steps by eights, the last ones filled up, as layers of linear attention compute them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = x.shape[1]
        y = nn.functional.pad(x.exp(), (0, 0, 0, (8 - count % 8) % 8))
        y = y.view(x.shape[0], -1, 8, x.shape[2])
        later = torch.ones(8, 8, dtype=torch.bool).triu(1)
        made = (y @ y.mT).masked_fill(later, 0.0) @ y
        return made.flatten(1, 2)[:, :count]


@pytest.mark.slow
@torch.no_grad()
def test_steps_by_eights(tmp_path: Path) -> None:
    """PyTorch writes the 8 that the module asks for as a quotient of sizes."""
    module, path = Chunked().eval(), tmp_path / "chunked.so"
    report = byoc.compile(
        module,
        path,
        example_inputs=(torch.randn(2, 5, 4),),
        dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},),
        min_bytes=0,
    ).report
    assert len(report.regions) == 1 and not report.left
    with byoc.load(path) as model:
        for shape in ((2, 5, 4), (3, 8, 4), (1, 3, 4)):
            x = torch.randn(shape)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), module(x))
