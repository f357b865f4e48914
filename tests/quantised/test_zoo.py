"""Networks of the zoo that onnxruntime quantised: one region, and right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import byoc
from byoc.bench.precision import PRECISIONS
from byoc.frontends.onnx.measured_model import draw_inputs
from byoc.zoo import build
from tests.quantised.networks import reference


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert_small_int8", "vit_small_int8", "mobilenet_v2_int8"])
def test_quantised_networks_of_the_zoo(name: str, tmp_path: Path) -> None:
    model = build(name)
    report = byoc.compile(model, tmp_path / "m.so").report
    assert report.left == () and len(report.regions) == 1
    assert report.offloaded_macs == report.macs > 0
    assert {"GEMM, int8", "matmul, int8"} & {use.algorithm for use in report.kernels}
    inputs = draw_inputs(model, seed=7)
    found = byoc.load(tmp_path / "m.so").run(inputs).values()
    for got, want in zip(found, reference(model, inputs), strict=True):
        # Steps of the last quantisation are a hundredth of the range and more.
        assert np.abs(got - want).max() <= 0.03 * np.abs(want).max()


@pytest.mark.slow
def test_verifying_allows_what_the_benchmark_allows(tmp_path: Path) -> None:
    model = build("vit_small_int8")
    byoc.compile(model, tmp_path / "m.so")
    (run,) = byoc.verify(model, tmp_path / "m.so").runs
    assert run.holds
    assert {out.tolerance for out in run.outputs} == {PRECISIONS["int8"].tolerance}


def test_they_are_made_once() -> None:
    assert build("vit_small_int8") == build("vit_small_int8")
