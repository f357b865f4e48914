"""Whole networks become one region each, and agree with ONNX Runtime.

Beside the zoo these are the networks that the package onnx carries, with random weights instead of
their constant ones, which would hide errors, and the trained ones in the package rapidocr.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import onnx
import pytest

import byoc
from models.carried import light, trained
from models.zoo import ZOO
from tests.conftest import CompiledCase
from tests.reference import SIGMOID_ERROR, assert_agrees

LEAST_MACS, LEAST_OPERATORS = 0.999, 0.98

LIGHT = ("inception_v1", "inception_v2", "densenet121", "shufflenet")
OCR = {
    "PP-OCRv6_det_small": [1, 3, 160, 160],
    "PP-OCRv6_rec_small": [1, 3, 48, 160],
    "ch_ppocr_mobile_v2.0_cls_mobile": [1, 3, 48, 192],
}
LARGE = ("vgg19", "bert", "gpt2", "vit_b_16", "convnext_t", "swin_t", "resnext50_32x4d")

#: Networks of which nothing is left to TVM.
WHOLE = {
    *("resnet50", "mobilenet_v2", "resnext_small", "yolo"),
    *("bert_small", "gpt2_small", "vit_small", "swin_small"),
}

#: What must be among the networks here, whatever becomes of the lists.
NAMED = {
    *("resnet50", "mobilenet_v2", "vgg19", "squeezenet", "inception_v1", "inception_v2"),
    *("densenet121", "shufflenet", "efficientnet_b0", "convnext_t", "bert", "vit_b_16", "gpt2"),
    *("swin_t", "resnext50_32x4d"),
    *("yolo", "PP-OCRv6_det_small", "PP-OCRv6_rec_small"),
}


def test_no_network_is_missing() -> None:
    assert {*ZOO, *LIGHT, *OCR} >= NAMED | WHOLE


def check(case: CompiledCase) -> None:
    report = case.report
    assert len(report.regions) == 1, report.summary()
    assert report.offloaded_macs >= LEAST_MACS * report.macs > 0
    least = 1.0 if case.name in WHOLE else LEAST_OPERATORS
    assert report.offloaded >= least * report.operators, report.left
    rounding = SIGMOID_ERROR if case.name in OCR else 0.0
    assert_agrees(byoc.load(case.library).run(case.inputs), case.expected, rounding=rounding)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in LARGE else n for n in ZOO]
)
def test_the_zoo(compiled_case: Callable[..., CompiledCase], name: str) -> None:
    check(compiled_case(name))


def test_scores_of_a_detector_agree_beside_its_boxes(
    compiled_case: Callable[..., CompiledCase],
) -> None:
    """Boxes range over hundreds of pixels, scores over one: a tolerance for both is none."""
    case = compiled_case("yolo")
    (got,) = byoc.load(case.library).run(case.inputs).values()
    (want,) = case.expected.values()
    assert want.shape[1] == 4 + 80
    for part in (slice(0, 4), slice(4, None)):
        assert_agrees({"part": got[:, part]}, {"part": want[:, part]})


@pytest.mark.parametrize("name", LIGHT)
def test_networks_of_the_package_onnx(
    compiled_case: Callable[..., CompiledCase], name: str
) -> None:
    check(compiled_case(name, light(name)))


@pytest.mark.skipif(find_spec("rapidocr") is None, reason="the package rapidocr is not installed")
@pytest.mark.parametrize("name", OCR)
def test_trained_networks(compiled_case: Callable[..., CompiledCase], name: str) -> None:
    model = trained(name, OCR[name])
    # What goes into the last function as well: of a random image, probabilities are next to 0.
    last = [node for node in model.graph.node if node.op_type in ("Softmax", "Sigmoid")][-1]
    float32 = onnx.TensorProto.FLOAT
    model.graph.output.append(onnx.helper.make_tensor_value_info(last.input[0], float32, None))
    check(compiled_case(name, model))
