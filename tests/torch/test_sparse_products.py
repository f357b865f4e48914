"""Products with sparse matrices, which graph networks make in ``forward`` or keep as buffers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import byoc
from byoc.errors import ImportFailure

EDGES = torch.tensor([[0, 1, 2, 5, 5, 5], [1, 2, 2, 0, 0, 4]])
VALUES, ROWS = torch.randn(6), torch.randn(6, 8)

Forward = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]


class Graph(nn.Module):
    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.register_buffer("edges", EDGES)
        self.register_buffer("kept", torch.sparse_coo_tensor(EDGES, torch.rand(6), (6, 6)))
        self.asked = forward

    def forward(self, values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.asked(self, values, x)

    def made(self, values: torch.Tensor) -> torch.Tensor:
        return torch.sparse_coo_tensor(self.edges, values, (6, 6))


FORMS: dict[str, Forward] = {
    "made": lambda m, values, x: m.made(values) @ x,
    "turned": lambda m, values, x: torch.sparse.mm(m.made(values).coalesce().t(), x),
    "behind": lambda m, values, x: x.t() @ m.made(values),
    "dense": lambda m, values, x: m.made(values).to_dense() * values,
    "kept": lambda m, values, x: torch.spmm(m.kept, x * values[:, None]),
    "kept, of a package": lambda m, values, x: torch.sparse.mm(m.kept, x) + values[:, None],
}


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_products(form: str, tmp_path: Path) -> None:
    module, library = Graph(FORMS[form]).eval(), tmp_path / "graph.so"
    done = byoc.compile(module, library, example_inputs=(VALUES, ROWS), min_bytes=0)
    assert len(done.report.regions) == 1 and done.report.left == ()
    with byoc.load(library) as model:
        found = torch.from_numpy(model(VALUES, ROWS))
    torch.testing.assert_close(found, module(VALUES, ROWS))


@torch.no_grad()
def test_what_else_is_done_with_sparse_matrices_is_refused(tmp_path: Path) -> None:
    module = Graph(lambda m, values, x: torch.sparse.softmax(m.made(values), 1) @ x).eval()
    with pytest.raises(ImportFailure, match="_sparse_softmax"):
        byoc.compile(module, tmp_path / "graph.so", example_inputs=(VALUES, ROWS))
