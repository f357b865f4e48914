"""Products of bytes, as torchao's dynamically quantised layers have them: exact, and offloaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import byoc


class Product(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(x, self.weight)


class Quantised(nn.Module):
    """A layer whose rows are quantised by their own range, as bytes above 128."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        weight = torch.randint(-128, 128, (outputs, inputs), dtype=torch.int32)
        self.register_buffer("weight", weight.to(torch.int8))
        self.register_buffer("scale", torch.rand(outputs) * 0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().amax(1, keepdim=True) / 127
        places = (x / scale).round().clamp(-128, 127).to(torch.int32) + 128
        weight = self.weight.t()
        sums = torch._int_mm(places.to(torch.uint8), weight)
        sums = sums - 128 * weight.sum(0, keepdim=True, dtype=torch.int32)
        return sums.float() * scale * self.scale


@pytest.mark.parametrize("length", [1, 512, 513, 1100])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_sums_are_exact(tmp_path: Path, dtype: torch.dtype, length: int) -> None:
    """The greatest and the least sums among them."""
    bounds = torch.iinfo(dtype)
    x = torch.randint(bounds.min, bounds.max + 1, (17, length), dtype=torch.int32)
    weight = torch.randint(-128, 128, (length, 24), dtype=torch.int32)
    x[0], x[1], weight[:, 0], weight[:, 1] = bounds.max, bounds.min, 127, -128
    x, module = x.to(dtype), Product(weight.to(torch.int8)).eval()
    done = byoc.compile(module, tmp_path / "net.so", example_inputs=(x,), verify=False)
    assert done.report.left == ()
    assert len(done.report.regions) == 1
    (found,) = byoc.load(tmp_path / "net.so").run({"x": x.numpy()}).values()
    np.testing.assert_array_equal(found, x.numpy().astype(np.int32) @ weight.numpy())


def test_layers_of_rows_with_their_own_range(tmp_path: Path) -> None:
    module, x = Quantised(96, 40).eval(), torch.randn(5, 96)
    shapes = ({0: torch.export.Dim("batch")},)
    done = byoc.compile(
        module, tmp_path / "net.so", example_inputs=(x,), dynamic_shapes=shapes, min_bytes=0
    )
    assert done.report.left == ()
    assert len(done.report.regions) == 1
    model = byoc.load(tmp_path / "net.so")
    for rows in (1, 5, 33):
        given = torch.randn(rows, 96)
        (found,) = model.run({"x": given.numpy()}).values()
        np.testing.assert_allclose(found, module(given).numpy(), rtol=1e-4, atol=1e-4)
