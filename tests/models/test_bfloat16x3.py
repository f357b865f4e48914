"""Networks that are multiplied in two parts of bfloat16: what is, and how near float32 it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import byoc
from byoc.accuracy import share_of_range
from tests.models.test_bfloat16 import answers, compiled, residual_network

X = np.random.default_rng(1).standard_normal((2, 17, 14, 14)).astype(np.float32)


@pytest.fixture
def with_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled for a CPU with AMX, whatever this one has."""
    monkeypatch.setenv("BYOC_COMPILE_ISA", "amx_bf16")


@pytest.mark.usefixtures("with_tiles")
def test_a_network_is_one_region_in_parts(tmp_path: Path) -> None:
    model = residual_network()
    network, report = compiled(model, tmp_path, precision="bf16x3")
    assert len(report.regions) == 1 and report.left == ()
    assert list(report.multiplied_in) == ["bfloat16x3"]
    (y,) = network.run({"x": X}).values()
    (expected,) = answers(model, {"x": X})
    assert y.dtype == np.float32
    assert 0 < share_of_range(y, expected) < 2e-5
    size = (tmp_path / "model.so").stat().st_size
    _, floats = compiled(model, tmp_path)
    assert size <= 1.02 * (tmp_path / "model.so").stat().st_size
    assert report.regions[0].plan.arena_bytes == floats.regions[0].plan.arena_bytes


@pytest.mark.usefixtures("with_tiles")
def test_nodes_in_bfloat16_and_in_parts_of_it(tmp_path: Path) -> None:
    """What passes between the two is float32."""
    model = residual_network()
    network, report = compiled(model, tmp_path, precision="bf16,third=bf16x3,matmul=bf16x3")
    assert set(report.multiplied_in) == {"bfloat16", "bfloat16x3"}
    (y,) = network.run({"x": X}).values()
    assert share_of_range(y, answers(model, {"x": X})[0]) < 2e-2


def test_a_cpu_without_tiles_computes_float32_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYOC_COMPILE_ISA", "avx512_bf16")
    _, report = compiled(residual_network(), tmp_path, precision="bf16x3")
    assert list(report.multiplied_in) == ["float32"]
    (reason,) = report.kept
    assert reason.startswith("bf16x3 takes three products in bfloat16") and "\n" not in reason


@pytest.mark.slow
@pytest.mark.usefixtures("with_tiles")
def test_auto_takes_parts_before_float32() -> None:
    model = residual_network()
    error = byoc.choose_precision(model, 0.05).error
    tight = byoc.choose_precision(model, error / 2)
    assert tight.error <= error / 2
    assert tight.precision[-1] == "bf16" and len(tight.precision) > 1
    assert all(spec.endswith("=bf16x3") for spec in tight.precision[:-1])
