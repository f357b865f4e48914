"""Parts of what was made larger, windows wide: as wide as it is in the example, or not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import byoc


class Windows(torch.nn.Module):
    """Softmax in windows of 8, the last of which is filled up, as Swin's attention has it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, length, channels = x.shape
        x = F.pad(x, (0, 0, 0, -length % 8))
        x = x.reshape(count, -1, 8, channels).softmax(2).reshape(count, -1, channels)
        return torch.exp(x[:, :length].contiguous())


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
