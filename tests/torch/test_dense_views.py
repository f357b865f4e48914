"""Views that go over no memory once a program is taken apart: of attention's result, and of
what is written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import byoc
from byoc.errors import ImportFailure, ModelError

HEADS, WIDTH = 3, 8


class Attention(nn.Module):
    """As nanoGPT and DINOv2 write it; ``written`` adds to the view where it lies."""

    def __init__(self, written: bool = False) -> None:
        super().__init__()
        self.into = nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH)
        self.written = written

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.into(x).split(HEADS * WIDTH, 2)
        shape = (*x.shape[:2], HEADS, WIDTH)
        found = F.scaled_dot_product_attention(*(p.view(shape).transpose(1, 2) for p in parts))
        rows = found.transpose(1, 2).contiguous().view(x.shape)
        if self.written:
            rows.add_(1)
            return rows + found.transpose(1, 2).flatten(2)
        return rows


@pytest.mark.slow
@torch.no_grad()
def test_rows_of_attention(tmp_path: Path) -> None:
    module, library = Attention().eval(), tmp_path / "attention.so"
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("rows")}
    given = torch.randn(2, 7, HEADS * WIDTH)
    done = byoc.compile(module, library, example_inputs=(given,), dynamic_shapes=(axes,))
    assert len(done.report.regions) == 1 and done.report.left == ()
    with byoc.load(library) as model:
        for shape in ((2, 7, HEADS * WIDTH), (3, 11, HEADS * WIDTH)):
            x = torch.randn(shape)
            torch.testing.assert_close(torch.from_numpy(model(x)), module(x))


@torch.no_grad()
def test_a_view_that_is_written_is_no_copy(tmp_path: Path) -> None:
    module, given = Attention(written=True).eval(), torch.randn(2, 7, HEADS * WIDTH)
    program = torch.export.export(module, (given,))
    with pytest.raises(ImportFailure, match="Cannot view a tensor"):
        byoc.compile(program, tmp_path / "attention.so")


@pytest.mark.slow
@torch.no_grad()
def test_rows_of_attention_in_a_compiled_module() -> None:
    module, given = Attention().eval(), torch.randn(2, 7, HEADS * WIDTH)
    assert "PyTorch" not in str(byoc.explain(module, (given,)))
    compiled = torch.compile(module, backend="byoc", options={"cache": False})
    torch.testing.assert_close(compiled(given), module(given))


class MaskedScores(nn.Module):
    """As the head for masks of DETR has it."""

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        scores = torch.einsum("bqnc,bnchw->bqnhw", query, key)
        scores.masked_fill_(key[:, :1, :1] < 0, -10.0)
        return scores.flatten(2).softmax(-1) + scores.flatten(2)


MASKED = (torch.randn(2, 5, 4, 8), torch.randn(2, 4, 8, 6, 6))


@torch.no_grad()
def test_a_sum_of_products_that_is_written(tmp_path: Path) -> None:
    module, library = MaskedScores().eval(), tmp_path / "masked.so"
    done = byoc.compile(module, library, example_inputs=MASKED)
    assert len(done.report.regions) == 1 and done.report.left == ()
    with byoc.load(library) as model:
        torch.testing.assert_close(torch.from_numpy(model(*MASKED)), module(*MASKED))


@torch.no_grad()
def test_a_sum_of_products_that_is_written_in_a_compiled_module() -> None:
    module = MaskedScores().eval()
    assert "PyTorch" not in str(byoc.explain(module, MASKED))


@torch.no_grad()
def test_a_view_by_a_sum_of_products_writes_what_it_is_of(tmp_path: Path) -> None:
    class Turned(MaskedScores):
        def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            torch.einsum("bqnc->bnqc", query).add_(1)
            return super().forward(query, key)

    with pytest.raises(ModelError, match="changes input 'query'"):
        byoc.compile(Turned().eval(), tmp_path / "masked.so", example_inputs=MASKED)
