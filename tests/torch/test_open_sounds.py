"""Sounds of open lengths, of their short-time transforms, beside PyTorch's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import byoc


class Filtered(nn.Module):
    """A spectrum with its phases, masked and made a sound again, as enhancers of speech do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(17, 17)
        self.register_buffer("window", torch.hann_window(32))
        self.register_buffer("short", torch.hamming_window(24))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        length = x.shape[-1]
        whole = torch.stft(x, 32, 8, window=self.window, return_complex=True)
        made = whole * self.inner(whole.abs().mT).sigmoid().mT
        narrow = torch.stft(x, 32, 8, 24, self.short, normalized=True, return_complex=True)
        edge = torch.stft(x, 32, 8, 24, self.short + 1, center=False, return_complex=True)
        both = torch.stft(x, 32, onesided=False, return_complex=True)
        return {
            "made": torch.istft(made, 32, 8, window=self.window, length=length),
            "row": made[0].istft(32, 8, 32, self.window, True, False, None, length) * 2,
            "narrow": torch.istft(narrow, 32, 8, 24, self.short, normalized=True, length=length),
            "padded": torch.istft(both, 32, onesided=False, length=length + 50),
            "edge": torch.istft(
                edge[:, :, :-1], 32, 8, 32, torch.ones(32), center=False, length=length - 16
            ),
            "both": torch.istft(both, 32, onesided=False, length=length),
        }


@pytest.mark.slow
@torch.no_grad()
def test_lengths_are_open(tmp_path: Path) -> None:
    torch.manual_seed(6)
    module, library = Filtered().eval(), tmp_path / "s.so"
    shapes = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("length", min=64)},)
    example = (torch.randn(2, 163),)
    compiled = byoc.compile(module, library, example_inputs=example, dynamic_shapes=shapes)
    assert not compiled.report.left and len(compiled.report.regions) == 1
    with byoc.load(library) as model:
        for x in (*example, torch.randn(3, 203), torch.randn(1, 128)):
            found = model.run({"x": x.numpy()})
            for name, wanted in module(x).items():
                torch.testing.assert_close(torch.from_numpy(found[name]), wanted)
