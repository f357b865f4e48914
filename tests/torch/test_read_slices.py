"""Slices that begin or end where numbers say that are read from tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import byoc
from byoc.torch_compile.graphs import collected

SLICES = {
    "end": lambda x, n: x[:, : n.item()],
    "begin": lambda x, n: x[:, n:],
    "last": lambda x, n: x[:, -n:],
    "window": lambda x, n: x[:, n : n + 2],
    "stepped": lambda x, n: x[:, 1 : 2 * n : 2],
}


class Cut(nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: torch.relu(cut(x, n)) for name, cut in SLICES.items()}


@torch.no_grad()
@pytest.mark.parametrize("rows", [None, torch.export.Dim("rows")])
def test_slices(rows: torch.export.Dim | None, tmp_path: Path) -> None:
    """The number may be below 0, or beyond the axis; then PyTorch's slice is as long as this."""
    module, library = Cut().eval(), tmp_path / "cut.so"
    report = byoc.compile(
        module,
        library,
        example_inputs=(torch.randn(2, 6, 3), torch.tensor(2)),
        dynamic_shapes=({1: rows}, {}) if rows else None,
        min_bytes=0,
    ).report
    assert {entry.op for entry in report.left} == {"relax.tensor_to_shape"}
    with byoc.load(library) as model:
        for length in (6, 9) if rows else (6,):
            for number in (2, 0, 1, 6, 8, -1, -7):
                x, n = torch.randn(2, length, 3), torch.tensor(number)
                found = model.run({"x": x.numpy(), "n": n.numpy()})
                for name, wanted in module(x, n).items():
                    assert_close(torch.from_numpy(found[name]), wanted)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = np.power(16, 0.5)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        mask = x.new_ones(x.shape)
        for row in range(len(lengths)):
            mask[row, lengths[row] :] = 0
        return x * mask / self.temperature


@torch.no_grad()
def test_scalars_of_numpy(tmp_path: Path) -> None:
    """Where the tracer of ``torch.compile`` follows the slices, it takes them as plain numbers."""
    module, library = Masked().eval(), tmp_path / "masked.so"
    given = torch.randn(2, 6), torch.tensor([6, 2])
    report = byoc.compile(module, library, example_inputs=given, min_bytes=0).report
    assert {entry.op for entry in report.left} == {"relax.tensor_to_shape"}
    with byoc.load(library) as model:
        for lengths in ([6, 2], [0, 6], [3, 1]):
            given = torch.randn(2, 6), torch.tensor(lengths)
            found = torch.from_numpy(model(*given))
            assert_close(found, module(*given))


class Narrowed(nn.Module):
    """Two such results of one number."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(x.narrow(-1, n, 2)), torch.narrow(x, dim=0, start=n, length=1).exp()


@torch.no_grad()
@pytest.mark.usefixtures("nothing_compiled")
def test_narrow(tmp_path: Path) -> None:
    """From a tensor on, the result is as long as ever."""
    module, library = Narrowed().eval(), tmp_path / "narrowed.so"
    columns = torch.export.Dim("columns")
    report = byoc.compile(
        module,
        library,
        example_inputs=(torch.randn(3, 6), torch.tensor(1)),
        dynamic_shapes=({1: columns}, {}),
        min_bytes=0,
    ).report
    assert report.left == () and len(report.regions) == 1
    with collected() as graphs:
        compiled = torch.compile(module, backend="byoc", options={"cache": False, "min_bytes": 0})
        with byoc.load(library) as model:
            for number in (1, 0, 2, -2):
                x, n = torch.randn(3, 6), torch.tensor(number)
                wanted = list(module(x, n))
                assert_close(list(map(torch.from_numpy, model(x.numpy(), n.numpy()))), wanted)
                if number >= 0:  # PyTorch's tracer would begin again
                    assert_close(list(compiled(x, n)), wanted)
    ((part,),) = (graph.parts for graph in graphs)
    assert "byoc: 1 region" in str(part)
