"""Sizes that were declared open, of modules whose code is for one size alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import byoc
from byoc.errors import ModelError

_OPEN = {0: torch.export.Dim("b"), 2: 32 * torch.export.Dim("h"), 3: 32 * torch.export.Dim("w")}


class _Detect(torch.nn.Module):
    """Keeps the places of its cells from call to call, as YOLOv5's last layer does."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Conv2d(3, 4, 32, 32)
        self.places = torch.empty(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x).repeat_interleave(2, 2)
        if self.places.shape != x.shape[2:]:
            rows, columns = (torch.arange(float(size)) for size in x.shape[2:])
            self.places = rows[:, None] * 8 + columns
        return x + self.places


@torch.no_grad()
def test_one_that_has_run_is_refused(tmp_path: Path) -> None:
    module = _Detect().eval()
    x = torch.rand(2, 3, 128, 160)
    module(x)
    with pytest.raises(ModelError, match=r"'h' was declared open, .* for h = 4 alone: it needs 2"):
        byoc.compile(module, tmp_path / "m.so", example_inputs=(x,), dynamic_shapes=(_OPEN,))


@pytest.mark.slow
@torch.no_grad()
def test_one_that_has_not_run_stays_open(tmp_path: Path) -> None:
    module = _Detect().eval()
    done = byoc.compile(
        module,
        tmp_path / "m.so",
        example_inputs=(torch.rand(2, 3, 128, 160),),
        dynamic_shapes=(_OPEN,),
    )
    assert done.report.left == () and len(done.report.regions) == 1
    with byoc.load(tmp_path / "m.so") as compiled:
        for shape in ((2, 3, 128, 160), (1, 3, 64, 224)):
            x = torch.rand(shape)
            torch.testing.assert_close(torch.from_numpy(compiled(x.numpy())), _Detect()(x))
