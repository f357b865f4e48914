"""Networks quantised as torchao's pt2e writes them: products run on integers, beside PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import nn
from torch.ao.quantization.fx._decomposed import determine_qparams

import byoc

ROOT = Path(__file__).resolve().parents[2]
Q = torch.ops.quantized_decomposed
BYTES = {torch.int8: (-128, 127), torch.uint8: (0, 255)}


class Weight(nn.Module):
    """An int8 weight with a scale for each output, as ``convert_pt2e`` leaves it."""

    def __init__(self, weight: torch.Tensor, point: int | None) -> None:
        super().__init__()
        scales = weight.flatten(1).abs().amax(1) / 127
        shape = (-1, *[1] * (weight.dim() - 1))
        steps = torch.round(weight / scales.view(shape)) + (point or 0)
        self.register_buffer("integers", steps.clamp(-128, 127).to(torch.int8))
        self.register_buffer("scales", scales)
        points = None if point is None else torch.full_like(scales, point, dtype=torch.int64)
        self.register_buffer("points", points)

    def forward(self) -> torch.Tensor:
        return Q.dequantize_per_channel(
            self.integers, self.scales, self.points, 0, -128, 127, torch.int8
        )


def rounded(x: torch.Tensor, scale: float, point: int, dtype: torch.dtype, *limits: int) -> Any:
    limits = limits or BYTES[dtype]
    y = Q.quantize_per_tensor(x, scale, point, *limits, dtype)
    return Q.dequantize_per_tensor(y, scale, point, *limits, dtype)


class Static(nn.Module):
    """Convolutions with a residual path, and a product."""

    def __init__(self, dtype: torch.dtype, limits: tuple[int, ...]) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1), nn.Linear(16, 5)
        self.weights = nn.ModuleList(Weight(layer.weight.data, 0) for layer in layers)
        self.biases = nn.ParameterList(layer.bias for layer in layers)
        self.dtype, self.limits = dtype, limits

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def data(x: torch.Tensor, scale: float) -> torch.Tensor:
            point = 120 if self.dtype is torch.uint8 and not self.limits else 3
            return rounded(x, scale, point, self.dtype, *self.limits)

        first, second, last = (weight() for weight in self.weights)
        y = torch.relu(nn.functional.conv2d(data(x, 0.05), first, self.biases[0], padding=1))
        y = data(y, 0.02)
        z = nn.functional.conv2d(y, second, self.biases[1], padding=1) + y
        z = data(torch.relu(z).mean((2, 3)), 0.01)
        return nn.functional.linear(z, last, self.biases[2])


def compiled(module: nn.Module, path: Path, *inputs: torch.Tensor, **options: Any) -> byoc.Compiled:
    """A library of one region that agrees with PyTorch (``verify`` is on)."""
    done = byoc.compile(
        module.eval(), path / "m.so", example_inputs=inputs, min_bytes=0, verify=True, **options
    )
    assert len(done.report.regions) == 1 and not done.report.left
    return done


def multiplied_in(done: byoc.Compiled) -> set[str]:
    nodes = done.report.to_json()["nodes"]
    return {node["multiplied_in"] for node in nodes if node.get("multiplied_in")}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=["int8", "uint8"])
@pytest.mark.parametrize("limits", [(), (0, 127)], ids=["whole", "half"])
def test_products_of_integers(dtype: torch.dtype, limits: tuple[int, ...], tmp_path: Path) -> None:
    """All steps of a byte, or as many as an older machine's products may have."""
    batch = torch.export.Dim("batch")
    x = torch.randn(3, 3, 9, 8)
    done = compiled(Static(dtype, limits), tmp_path, x, dynamic_shapes=({0: batch},))
    assert multiplied_in(done) == {str(dtype).removeprefix("torch.")}


class Given(nn.Module):
    """A product whose data have a scale and a zero point that are buffers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = Weight(torch.randn(8, 32), 0)
        self.register_buffer("scale", torch.tensor([0.05], dtype=torch.float64))
        self.register_buffer("point", torch.tensor([60]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kind = (self.scale, self.point, 0, 127, torch.uint8)
        y = Q.dequantize_per_tensor.tensor(Q.quantize_per_tensor.tensor(x, *kind), *kind)
        return nn.functional.linear(y, self.weight())


def test_numbers_in_buffers(tmp_path: Path) -> None:
    assert multiplied_in(compiled(Given(), tmp_path, torch.randn(4, 32))) == {"uint8"}


class Dynamic(nn.Module):
    """A product whose data are rounded by what they are."""

    def __init__(self, symmetric: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.bias = Weight(torch.randn(8, 32), None), nn.Parameter(torch.randn(8))
        self.symmetric = symmetric

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        dtype = torch.int8 if self.symmetric else torch.uint8
        choose = Q.choose_qparams_symmetric if self.symmetric else Q.choose_qparams
        scale, point = choose.tensor(x, *BYTES[dtype], 1e-7, dtype)
        y = Q.quantize_per_tensor.tensor(x, scale, point, *BYTES[dtype], dtype)
        y = Q.dequantize_per_tensor.tensor(y, scale, point, *BYTES[dtype], dtype)
        return nn.functional.linear(y, self.weight(), self.bias), scale, point


@pytest.mark.parametrize("symmetric", [True, False])
@torch.no_grad()
def test_scales_of_the_data(symmetric: bool, tmp_path: Path) -> None:
    module, x = Dynamic(symmetric).eval(), torch.randn(4, 32)
    done = byoc.compile(module, tmp_path / "m.so", example_inputs=(x,), min_bytes=0)
    assert multiplied_in(done) == {"int8" if symmetric else "uint8"}
    with byoc.load(tmp_path / "m.so") as model:
        for data in (x, torch.zeros(4, 32), torch.rand(4, 32) + 5, -torch.rand(4, 32)):
            found, scale, point = (torch.from_numpy(y) for y in model(data.numpy()))
            dtype = torch.int8 if symmetric else torch.uint8
            scheme = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
            wanted = determine_qparams(
                *torch.aminmax(data), *BYTES[dtype], dtype, torch.tensor([1e-7]), False, scheme
            )
            torch.testing.assert_close(scale, wanted[0])
            assert torch.equal(point, wanted[1])
            torch.testing.assert_close(found, module(data)[0], rtol=1e-4, atol=1e-4)


class Bytes(nn.Module):
    """Layers as torchao's ``Int8WeightOnlyConfig`` leaves them: their products are multiplied."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        for name, shape in {"first": (256, 128), "second": (16, 256)}.items():
            self.register_buffer(name, torch.randint(-128, 128, shape, dtype=torch.int8))
            scales = (torch.rand(shape[0]) / 1000 + 1e-4).to(dtype)
            self.register_buffer(f"{name}_scales", scales)
        self.bias = nn.Parameter(torch.randn(256, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.mm(x, self.first.t().to(x.dtype)) * self.first_scales + self.bias
        return nn.functional.linear(torch.relu(y), self.second.to(x.dtype)) * self.second_scales


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_weights_of_bytes_alone(dtype: torch.dtype, tmp_path: Path) -> None:
    """They stay bytes, and the factors of columns are their scales."""
    done = compiled(Bytes(dtype), tmp_path, torch.randn(4, 128, dtype=dtype))
    names = [node["composite"] for node in done.report.to_json()["nodes"]]
    assert [name for name in names if "cast" not in name] == ["ext.matmul_bias_relu", "ext.matmul"]
    (region,) = done.metadata.report["regions"]
    assert region["weight_bytes"] < 2 * (256 * 128 + 16 * 256)


class Blocks(nn.Module):
    """A layer as torchao's ``IntxWeightOnlyConfig`` leaves it: 32 rows share a scale."""

    def __init__(self, dtype: torch.dtype, limits: tuple[int, int], shifted: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("integers", torch.randint(*limits, (64, 256), dtype=torch.int8))
        self.register_buffer("scales", (torch.rand(64, 8) / 100 + 1e-3).to(dtype))
        self.register_buffer("points", torch.randint(-2, 3, (64, 8), dtype=torch.int8))
        self.shifted = shifted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        blocks = self.integers.view(64, 8, 32).to(x.dtype)
        if self.shifted:
            blocks = blocks - self.points.view(64, 8, 1).to(x.dtype)
        weight = (blocks * self.scales.view(64, 8, 1)).view(64, 256)
        return torch.tanh(nn.functional.linear(x, weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("limits", [(-8, 8), (-100, 100)], ids=["4 bits", "8 bits"])
def test_weights_in_blocks(
    dtype: torch.dtype, shifted: bool, limits: tuple[int, int], tmp_path: Path
) -> None:
    """They stay integers, beside float32 scales and points."""
    module, x = Blocks(dtype, limits, shifted), torch.randn(3, 256, dtype=dtype)
    (region,) = compiled(module, tmp_path, x).metadata.report["regions"]
    assert region["weight_bytes"] == 64 * 256 + 64 * 8 * 4 * (1 + shifted)


class Others(nn.Module):
    """Integers of other sizes, and scales along axes, that no product reads."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dtype, known = dtype, torch.iinfo(dtype)
        self.limits = max(known.min, -3000), min(known.max, 3000)
        self.register_buffer("scales", torch.rand(6) / 10 + 0.01)
        self.register_buffer("points", torch.arange(6))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kind = (*self.limits, self.dtype)
        y = Q.quantize_per_channel(x, self.scales, self.points, 1, *kind)
        z = Q.dequantize_per_channel(y, self.scales, self.points, 1, *kind)
        one = Q.quantize_per_tensor(z, 0.07, 5, *kind)
        half = Q.dequantize_per_tensor(one, 0.07, 5, *kind, out_dtype=torch.bfloat16)
        return torch.relu(z) + half, half


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32], ids=str)
def test_other_integers(dtype: torch.dtype, tmp_path: Path) -> None:
    byoc.compile(
        Others(dtype).eval(), tmp_path / "m.so", example_inputs=(torch.randn(2, 6, 5),), verify=True
    )


@pytest.mark.slow
def test_a_file_of_such_a_program(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 8, 8)
    torch.export.save(torch.export.export(Static(torch.uint8, ()), (x,)), tmp_path / "m.pt2")
    done = byoc.compile(tmp_path / "m.pt2", tmp_path / "m.so", min_bytes=0)
    assert multiplied_in(done) == {"uint8"} and len(done.report.regions) == 1
    command = [sys.executable, "-m", "byoc", "compile", "m.pt2", "-o", "other.so"]
    path = os.pathsep.join([str(ROOT), str(Path(torch.__file__).parents[1])])
    # In a process that has not imported the operators.
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, check=True)


def test_layers_of_quantised_tensors_are_refused() -> None:
    layers = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval()
    layers = torch.ao.quantization.quantize_dynamic(layers, {nn.Linear}).eval()
    with pytest.raises(
        byoc.ByocError, match=r"^module '0' \(Linear\) has quantised tensors, .*pt2e$"
    ):
        byoc.compile(layers, example_inputs=(torch.randn(2, 8),))
