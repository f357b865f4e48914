"""Modules in float16 and bfloat16: numbers beside halves, and operators that meet other dtypes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import byoc

HALVES = (torch.float16, torch.bfloat16)


def _results(module: nn.Module, folder: Path, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """What the library computes, all of it in regions, in the dtypes that PyTorch has."""
    done = byoc.compile(module, folder / "net.so", example_inputs=inputs, verify=False, min_bytes=0)
    assert done.report.left == () and done.report.regions
    found = byoc.load(folder / "net.so").run(inputs)
    made = {}
    for info in done.metadata.outputs:
        dtype = getattr(torch, info.dtype)
        array = np.ascontiguousarray(found[info.name])
        bits = array.view(np.int16) if dtype in HALVES else array
        made[info.name] = torch.from_numpy(bits.copy()).view(dtype)
    return made


class Numbers(nn.Module):
    """Functions of a half and a number that it cannot hold, each rounded once."""

    def forward(self, x: torch.Tensor, k: torch.Tensor, mask: torch.Tensor) -> dict[str, object]:
        return {
            "times": x * 0.3,
            "times_tensor": x * torch.tensor(0.3),
            "over": x / 0.7,
            "beyond": x + (1.0 - mask) * -1e9,
            "slope": F.leaky_relu(x, 0.3),
            "greater": x > 0.3,
            "equal": x == 0.3,
            "left": torch.fmod(x, 0.3),
            "twice": torch.ldexp(x, k),
            "power_of_two": torch.exp2(k.to(x.dtype)),
            "normalised": F.rms_norm(x * 1e-3, (4,)),
        }


@pytest.mark.parametrize("dtype", HALVES)
def test_numbers_beside_halves_are_not_rounded(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(5)
    x = torch.randn(9, 4).to(dtype)
    x[0] = 0.3
    k, mask = torch.tensor([3, -2, 0, 1]), torch.tensor([1.0, 0.0, 1.0, 1.0]).to(dtype)
    module = Numbers().eval()
    made = _results(module, tmp_path, x=x, k=k, mask=mask)
    wanted = module(x, k, mask)
    # The product before is not rounded here.
    torch.testing.assert_close(made.pop("normalised"), wanted.pop("normalised"))
    for name, result in wanted.items():
        assert made[name].dtype == result.dtype, name
        assert torch.equal(made[name], result), name


class OtherDtypes(nn.Module):
    """Halves that meet float32 or complex numbers."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        scale, zero = torch.tensor([0.1, 0.02, 0.5]), torch.tensor([0, 3, -1], dtype=torch.int32)
        signal = torch.stft(x.flatten(), 8, window=torch.hann_window(8), return_complex=True)
        turned = torch.polar(torch.ones(3, 16), torch.arange(48.0).reshape(3, 16)) * x
        return {
            "put": x.index_put((mask,), torch.tensor(7.0)),
            "quantised": torch.fake_quantize_per_channel_affine(x, scale, zero, 0, -8, 7),
            "signal": torch.view_as_real(signal),
            "turned": torch.view_as_real(turned),
        }


@pytest.mark.parametrize("dtype", HALVES)
def test_halves_meet_other_dtypes(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(5)
    x, mask = torch.randn(3, 16).to(dtype), torch.tensor([True, False, True])
    module = OtherDtypes().eval()
    made = _results(module, tmp_path, x=x, mask=mask)
    for name, wanted in module(x, mask).items():
        torch.testing.assert_close(made[name], wanted, msg=lambda m, n=name: f"{n}: {m}")
