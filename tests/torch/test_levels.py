"""Programs that fail within ``torch.vmap``, and what PyTorch does afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import byoc
from byoc.errors import ImportFailure
from byoc.frontends.torch import taken_apart


class Mapped(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: row.sin() * 2)(x)


def _fails(*_: object) -> torch.Tensor:
    raise RuntimeError("no such sizes")


def test_what_fails_leaves_no_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taken_apart, "decompositions", lambda: {torch.ops.aten.sin.default: _fails})
    with pytest.raises(ImportFailure, match="no such sizes"):
        byoc.compile(Mapped().eval(), tmp_path / "m.so", example_inputs=(torch.randn(3, 4),))
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
    assert torch.randn(2).shape == (2,)  # where a level is left, no numbers may be drawn
