"""Functions of open sizes that the tracer of ``torch.compile`` writes: ``math.sin(n)``."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import nn

import byoc
from byoc.errors import FallbackWarning
from byoc.torch_compile.backend import backend

pytestmark = pytest.mark.usefixtures("nothing_compiled")


class Curves(nn.Module):
    """Scales what a layer gives by numbers that depend on how much there is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        waves = math.sin(n) + math.cos(n / 3) * math.tan(1 / n)
        steep = math.sinh(n / 9) - math.cosh(n / 9) + math.tanh(n / 10)
        angles = math.asin(1 / n) + math.acos(1 / n) * math.atan(n)
        return self.layer(x) * waves + steep * angles + math.log2(n) * abs(3.5 - n)


@pytest.mark.slow
@torch.no_grad()
def test_sizes_stay_open() -> None:
    torch.manual_seed(0)
    module = Curves().eval()
    compiled = torch.compile(module, backend=backend, dynamic=True, options={"cache": False})
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for n in (5, 7, 30):
            x = torch.rand(n, 8)
            torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-4)
    torch._dynamo.reset()
    assert "byoc: 1 region" in str(byoc.explain(module, (torch.rand(5, 8),)))
