"""Plain numbers that code makes of open sizes, where PyTorch's tracer fixes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import log2
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import byoc
from byoc.frontends.torch.program import exported

_OPEN = {0: torch.export.Dim("b"), 1: torch.export.Dim("n")}


def _rotated(x: torch.Tensor) -> torch.Tensor:
    """Places between -1 and 1, as DINOv3 has them."""
    count = x.shape[1] // 2
    places = (torch.arange(0.5, count) / float(count)).repeat_interleave(2)
    return x[:, : 2 * count] * torch.cos(places)


def _compared(x: torch.Tensor) -> torch.Tensor:
    """A size is a whole number to code that asks."""
    half = int(0.5 * x.shape[1])
    return x[:, :half] if isinstance(x.shape[1], int) else x


def _attended(x: torch.Tensor) -> torch.Tensor:
    rows = x[..., None] * 8
    one = F.scaled_dot_product_attention(rows, rows, rows, scale=1 / math.sqrt(x.shape[1]))
    other = F.scaled_dot_product_attention(rows, rows, rows, scale=math.log(x.shape[1]))
    return torch.cat([one, other], -1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "compute",
    [
        _rotated,
        _compared,
        lambda x: x[:, : int(x.shape[1] * 0.5)],
        lambda x: x.reshape(x.shape[0], int(x.shape[1] / 4), 4).sum(1),
        lambda x: F.interpolate(x[None, None], size=(int(x.shape[0] * 1.5), x.shape[1] // 2)),
        lambda x: x + torch.full((1,), float(x.shape[1] // 2)),
        lambda x: x / math.sqrt(float(x.shape[1] // 2)) * max(1.0, math.sqrt(x.shape[0])),
        lambda x: x * math.log(x.shape[1], 512) * math.exp(-x.shape[0] / 8) * log2(x.shape[0]),
        lambda x: x * math.sin(x.shape[1]) + math.hypot(x.shape[0], x.shape[1]),
        lambda x: x * np.sqrt(x.shape[1] // 2) * np.log(x.shape[0]) / np.exp(x.shape[0] / 8),
        _attended,
        lambda x: x.reshape(x.shape[0], math.gcd(x.shape[1], 4), -1).softmax(1),
        lambda x: x.repeat_interleave(math.lcm(4, x.shape[1]) // x.shape[1], 1),
        lambda x: x[:, : divmod(x.shape[1], 3)[0]] * divmod(70, x.shape[0])[1],
        lambda x: x * math.fmod(x.shape[1], 6) + math.atan2(x.shape[0], math.degrees(x.shape[1])),
        lambda x: torch.arange(math.comb(x.shape[0], 2)).float() * x.mean(),
    ],
    ids=[
        *("rotated", "compared", "half", "quarters", "resized", "filled", "roots", "logarithms"),
        *("waves", "numpy", "attended", "divisor", "multiple", "quotient", "rests", "choices"),
    ],
)
@torch.no_grad()
def test_sizes_stay_open(compute: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path) -> None:
    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return compute(self.layer(x[..., None])[..., 0])

    torch.manual_seed(0)
    module = Module().eval()
    done = byoc.compile(
        module, tmp_path / "m.so", example_inputs=(torch.rand(6, 16),), dynamic_shapes=(_OPEN,)
    )
    assert done.report.left == () and len(done.report.regions) == 1
    compiled = byoc.load(tmp_path / "m.so")
    for shape in ((6, 16), (3, 20), (5, 64)):
        x = torch.rand(shape)
        torch.testing.assert_close(torch.from_dlpack(compiled(x)), module(x), atol=1e-5, rtol=1e-5)
    assert "float" not in globals() and "int" not in globals()
    assert globals()["math"] is math and log2 is math.log2


@pytest.mark.parametrize(
    "side, condition",
    [
        (lambda n: int(n**0.5), "trunc(float(n) ** 0.5) == 4"),
        (lambda n: int(math.sqrt(n)), "trunc(sqrt(float(n))) == 4"),
        (lambda n: round(math.sqrt(n)), "round(sqrt(float(n))) == 4"),
        (lambda n: math.isqrt(n), "trunc(sqrt(float(n))) == 4"),
    ],
)
def test_what_no_shape_can_have_is_fixed(side: Callable[[int], int], condition: str) -> None:
    """The root of a size is what it is in the example."""

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, : side(x.shape[1])]

    program = exported(Module().eval(), (torch.rand(6, 16),), (_OPEN,))
    assert program.conditions() == (condition,)


def test_code_that_needs_plain_types() -> None:
    """``float`` is a dtype for PyTorch; the size is fixed, as it is by PyTorch's tracer."""

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(float) / float(x.shape[1] // 2)

    shapes = ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},)
    program = exported(Module().eval(), (torch.rand(6, 16),), shapes)
    assert any("// 2 == 8" in text for text in program.conditions())
