"""Tables of words whose rows have a greatest norm."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import byoc
from byoc.errors import ImportFailure, ModelError


class Words(nn.Module):
    """Words alone, and in bags."""

    def __init__(self) -> None:
        super().__init__()
        self.alone = nn.Embedding(9, 4, max_norm=1.0)
        self.bag = nn.EmbeddingBag(9, 4, max_norm=0.5, norm_type=1.0)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.alone(words)).sum(1) + self.bag(words)


@torch.no_grad()
def test_rows_are_bounded(tmp_path: Path) -> None:
    module, library = Words().eval(), tmp_path / "words.so"
    words = torch.tensor([[1, 4, 1], [8, 0, 3]])
    report = byoc.compile(module, library, example_inputs=(words,), min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    with byoc.load(library) as model:
        for given in (words, 8 - words):
            found = torch.from_numpy(model(given.numpy()))
            torch.testing.assert_close(found, module(given))


@torch.no_grad()
def test_a_table_that_the_caller_gives_is_written() -> None:
    class Given(nn.Module):
        def forward(self, words: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
            return nn.functional.embedding(words, table, max_norm=1.0)

    with pytest.raises(ImportFailure, match="embedding_renorm"):
        byoc.compile(Given().eval(), example_inputs=(torch.tensor([1]), torch.randn(9, 4)))


@torch.no_grad()
def test_a_table_that_something_else_reads_is_refused() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(9, 4, max_norm=1.0)
            self.back = nn.Linear(4, 9)
            self.back.weight = self.words.weight

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return self.back(torch.relu(self.words(words)))

    with pytest.raises(ModelError, match="in place, call by call, and linear reads"):
        byoc.compile(Tied().eval(), example_inputs=(torch.tensor([1, 4]),))
