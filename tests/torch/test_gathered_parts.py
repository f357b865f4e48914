"""Gathered elements where the index ends before the tensor does, along open axes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import byoc
from byoc.errors import InputError

AUTO = torch.export.Dim.AUTO


class Chosen(nn.Module):
    """Of several layers' results, the one that each row asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        every = torch.stack([layer(x).relu() + x for layer in self.layers], 1)
        places = which[:, None, None, None].expand(-1, 1, x.shape[1], 8)
        return every.gather(1, places)[:, 0].tanh()


@pytest.mark.slow
def test_rows_that_ask_for_a_layer(tmp_path: Path) -> None:
    """There may be fewer of them than rows, and not more."""
    module, path = Chosen().eval(), tmp_path / "net.so"
    given = (torch.randn(4, 5, 8), torch.tensor([0, 2, 1]))
    shapes = ({0: AUTO, 1: AUTO}, {0: AUTO})
    done = byoc.compile(module, path, example_inputs=given, dynamic_shapes=shapes, min_bytes=0)
    assert done.report.left == ()
    assert len(done.report.regions) == 1
    model = byoc.load(path)
    for rows, length, asked in ((4, 5, 3), (3, 7, 3), (5, 1, 1)):
        x, which = torch.randn(rows, length, 8), torch.randint(0, 3, (asked,))
        (found,) = model.run({"x": x.numpy(), "which": which.numpy()}).values()
        torch.testing.assert_close(
            torch.from_numpy(found), module(x, which).detach(), rtol=1e-4, atol=1e-5
        )
    with pytest.raises(InputError, match="it needs"):
        model.run({"x": x.numpy(), "which": torch.zeros(6, dtype=torch.int64).numpy()})
