"""Whole networks become one region each, and agree with ONNX Runtime.

Beside the zoo these are the networks that the package onnx carries, with random weights instead of
their constant ones, which would hide errors, and the trained ones in the package rapidocr.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest

import byoc
from models.zoo import ZOO
from tests.conformance.cases import reseeded
from tests.conftest import CompiledCase
from tests.reference import assert_agrees

LEAST_MACS, LEAST_OPERATORS = 0.999, 0.98

LIGHT = ("inception_v1", "inception_v2", "densenet121", "shufflenet")
OCR = {
    "PP-OCRv6_det_small": [1, 3, 160, 160],
    "PP-OCRv6_rec_small": [1, 3, 48, 160],
    "ch_ppocr_mobile_v2.0_cls_mobile": [1, 3, 48, 192],
}
LARGE = ("vgg19", "bert", "gpt2", "vit_b_16", "convnext_t")


def check(case: CompiledCase) -> None:
    report = case.report
    assert len(report.regions) == 1, report.summary()
    assert report.offloaded_macs >= LEAST_MACS * report.macs > 0
    assert report.offloaded >= LEAST_OPERATORS * report.operators, report.left
    assert_agrees(byoc.load(case.library).run(case.inputs), case.expected)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in LARGE else n for n in ZOO]
)
def test_the_zoo(compiled_case: Callable[..., CompiledCase], name: str) -> None:
    check(compiled_case(name))


@pytest.mark.parametrize("name", LIGHT)
def test_networks_of_the_package_onnx(
    compiled_case: Callable[..., CompiledCase], name: str
) -> None:
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    check(compiled_case(name, reseeded(onnx.load(folder / f"light_{name}.onnx"))))


@pytest.mark.skipif(find_spec("rapidocr") is None, reason="the package rapidocr is not installed")
@pytest.mark.parametrize("name", OCR)
def test_trained_networks(compiled_case: Callable[..., CompiledCase], name: str) -> None:
    file = Path(find_spec("rapidocr").origin).parent / "models" / f"{name}.onnx"
    model = onnx.load(file)
    for dim, extent in zip(model.graph.input[0].type.tensor_type.shape.dim, OCR[name], strict=True):
        dim.dim_value = extent
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    check(compiled_case(name, model))
