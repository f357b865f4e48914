"""Reshapes that drop elements, or want more, at some sizes: refused there, as PyTorch does it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import byoc
from byoc.errors import RunError


class Pairs(nn.Module):
    """Rows by twos, after a kernel or before one."""

    def __init__(self, after: bool) -> None:
        super().__init__()
        self.after = after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = (torch.tanh(x) if self.after else x).view(x.shape[0] // 2, -1)
        return pairs if self.after else torch.sigmoid(pairs)


@pytest.mark.parametrize("after", [True, False])
def test_rows_by_twos(tmp_path: Path, after: bool) -> None:
    module, x = Pairs(after).eval(), torch.randn(8, 400)
    path = tmp_path / "pairs.so"
    report = byoc.compile(module, path, example_inputs=(x,), dynamic_shapes=({0: Dim.AUTO},)).report
    assert len(report.regions) == 1 and [left.op for left in report.left] == ["relax.reshape"]
    model = byoc.load(path)
    for rows in (8, 6, 2):
        x = torch.randn(rows, 400)
        (found,) = model.run({"x": x.numpy()}).values()
        np.testing.assert_allclose(found, module(x).numpy(), atol=1e-6)
    for rows in (7, 1):
        x = torch.randn(rows, 400)
        with pytest.raises(RuntimeError):
            module(x)
        with pytest.raises(RunError, match="sizes inside the network do not fit"):
            model.run({"x": x.numpy()})
