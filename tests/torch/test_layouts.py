"""Parts of what was made larger, windows wide: as wide as it is in the example, or not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import byoc
from byoc.frontends.torch.conditions import _traced
from byoc.frontends.torch.program import exported


class Windows(torch.nn.Module):
    """Softmax in windows of 8, the last of which is filled up, as Swin's attention has it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, length, channels = x.shape
        x = F.pad(x, (0, 0, 0, -length % 8))
        x = x.reshape(count, -1, 8, channels).softmax(2).reshape(count, -1, channels)
        return torch.exp(x[:, :length].contiguous())


@pytest.mark.slow
@pytest.mark.parametrize("length", [16, 13])
@torch.no_grad()
def test_sizes_stay_open(length: int, tmp_path: Path) -> None:
    module, axes = Windows().eval(), {0: torch.export.Dim("b"), 1: torch.export.Dim("n")}
    done = byoc.compile(
        module,
        tmp_path / "m.so",
        example_inputs=(torch.rand(2, length, 4),),
        dynamic_shapes=(axes,),
    )
    assert done.report.left == () and len(done.report.regions) == 1
    compiled = byoc.load(tmp_path / "m.so")
    assert compiled.metadata.conditions == ()
    for shape in ((3, 16, 4), (3, 13, 4), (2, 5, 4)):
        x = torch.rand(shape)
        torch.testing.assert_close(torch.from_dlpack(compiled(x)), module(x), atol=1e-5, rtol=1e-5)


def test_other_questions_stay_those_of_who_asked() -> None:
    """What PyTorch asks itself is not taken for a question of the module's code."""

    class Merged(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
            count, height, width, channels = x.shape
            x = x.reshape(count, height // 2, 2, width // 2, 2, channels)
            return x.permute(0, 1, 3, 4, 2, 5).flatten(3)

    h, w = (4 * torch.export.Dim(name) for name in "hw")
    program = exported(Merged().eval(), (torch.rand(1, 16, 16, 4),), ({1: h, 2: w},))
    places = [str(guard.sloc.framework_loc) for guard in _traced(program.exported)]
    assert places and not any("layouts.py" in place for place in places)
