"""Modules of PyTorch as TVM's importer of exported programs yields them.

Every kernel counts as there; descriptors are interpreted in numpy and compared with PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from tvm.relax.frontend.torch import from_exported_program

import byoc.partition.annotate
from byoc.canonicalise import canonicalise
from byoc.partition.annotate import annotate
from byoc.partition.merge import merge
from tests.ir.graphs import operators, regions
from tests.ir.interpret import Interpreter


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments):
        return self.function(*arguments)


def composites(module: nn.Module, *inputs: torch.Tensor, tolerance: float = 1e-4) -> list[str]:
    """Composites of the one region, after a comparison of values."""
    module = module.eval()
    with torch.no_grad():
        program = torch.export.export(module, inputs)
        want = module(*inputs).numpy()
    mod = from_exported_program(program, unwrap_unit_return_tuple=True)
    out = merge(annotate(canonicalise(mod)))
    assert operators(out) == []
    (got,) = Interpreter(out)(*(x.numpy() for x in inputs))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    (names,) = regions(out).values()
    return names


@pytest.fixture(autouse=True)
def seeded_and_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byoc.partition.epilogues, "supports", lambda node: None)
    torch.manual_seed(0)


IMAGE, LINE, TOKENS = (1, 8, 12, 12), (2, 8, 16), (2, 10, 32)

MODULES = {
    "conv2d": (lambda: nn.Conv2d(8, 16, 3, 2, 1), IMAGE, ["conv2d_bias"]),
    "conv1d": (
        lambda: nn.Sequential(nn.Conv1d(8, 16, 3, padding=1), nn.ReLU()),
        LINE,
        ["reshape", "conv2d_bias_relu", "reshape"],
    ),
    "conv3d": (lambda: nn.Conv3d(4, 6, 3, padding=1), (1, 4, 5, 6, 7), ["conv3d_bias"]),
    "transposed": (
        lambda: nn.ConvTranspose2d(8, 6, 3, 2, 1, 1),
        IMAGE,
        ["conv2d_transpose_bias"],
    ),
    "batch_norm": (
        lambda: nn.Sequential(nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16), nn.SiLU()),
        IMAGE,
        ["conv2d_bias_silu"],
    ),
    "layer_norm": (lambda: nn.LayerNorm(32), TOKENS, ["layer_norm"]),
    "group_norm": (lambda: nn.GroupNorm(4, 8), IMAGE, ["group_norm"]),
    "rms_norm": (lambda: nn.RMSNorm(32), TOKENS, ["rms_norm"]),
    "linear": (
        lambda: nn.Sequential(nn.Linear(32, 48), nn.GELU()),
        TOKENS,
        ["matmul_bias_gelu"],
    ),
    "gelu_tanh": (lambda: nn.GELU(approximate="tanh"), TOKENS, ["gelu_tanh"]),
    "elu": (lambda: nn.ELU(), TOKENS, ["elu"]),
    "hardsigmoid": (lambda: nn.Hardsigmoid(), TOKENS, ["hard_sigmoid"]),
    "hardswish": (lambda: nn.Hardswish(), TOKENS, ["hard_swish"]),
    "prelu": (lambda: nn.PReLU(8), IMAGE, ["prelu"]),
    "max_pool": (lambda: nn.MaxPool2d(3, 2, 1), IMAGE, ["max_pool2d"]),
    "adaptive": (lambda: nn.AdaptiveAvgPool2d(4), IMAGE, ["avg_pool2d"]),
    "softmax": (lambda: nn.LogSoftmax(1), TOKENS, ["softmax"]),
    "bilinear": (
        lambda: nn.Upsample(size=(9, 20), mode="bilinear", align_corners=True),
        IMAGE,
        ["resize2d"],
    ),
    "shuffle": (lambda: nn.PixelShuffle(2), IMAGE, ["reshape", "permute", "reshape"]),
    "zero_pad": (lambda: nn.ZeroPad2d(1), IMAGE, ["pad"]),
}


@pytest.mark.parametrize("name", MODULES)
def test_module(name: str) -> None:
    build, shape, expected = MODULES[name]
    assert composites(build(), torch.randn(shape)) == [f"ext.{part}" for part in expected]


def test_embedding() -> None:
    names = composites(nn.Embedding(50, 16), torch.tensor([[1, 2, 49]]))
    assert "ext.take" in names


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_in_one_region(causal: bool) -> None:
    q, k, v = (torch.randn(2, 4, 6, 8) for _ in range(3))
    names = composites(
        Function(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)),
        *(q, k, v),
    )
    assert names.count("ext.matmul") == 2 or "ext.attention" in names
    assert "ext.reshape" not in names


@pytest.mark.slow
def test_encoder_layer() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    names = composites(layer, torch.randn(2, 10, 32), tolerance=1e-3)
    assert "ext.matmul_bias_relu" in names
