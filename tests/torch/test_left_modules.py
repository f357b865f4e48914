"""Modules that an error leaves, after which the code goes on without."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import byoc


class Tried(nn.Module):
    """As SpeechBrain has it: which layers take the lengths, an error tells."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            try:
                x = layer(x, lengths=None)
            except TypeError:
                x = layer(x)
        return x


@torch.no_grad()
def test_layers_that_are_tried(tmp_path: Path) -> None:
    module, given, library = Tried().eval(), torch.randn(3, 8), tmp_path / "tried.so"
    done = byoc.compile(module, library, example_inputs=(given,), min_bytes=0)
    assert len(done.report.regions) == 1 and done.report.left == ()
    with byoc.load(library) as model:
        torch.testing.assert_close(torch.from_numpy(model(given)), module(given))
