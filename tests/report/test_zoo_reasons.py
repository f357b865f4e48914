"""Whole networks of which something is left: every operator that stays says why, with values."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import onnx
import pytest
import tvm

from byoc.compiler.partition import partition_with_report
from byoc.errors import ByocError
from byoc.frontends.onnx import import_onnx, prepare
from byoc.report import Report
from models.convnext import convnext
from models.efficientnet import efficientnet_b0
from models.squeezenet import squeezenet
from models.yolo import yolo
from models.zoo import ZOO
from tests.conformance.cases import subset

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

Build = Callable[[], onnx.ModelProto]

#: Networks, and an operator of each that the tests leave to TVM.
NETWORKS: dict[str, tuple[Build, str]] = {
    "bert_small": (ZOO["bert_small"].build, "relax.nn.softmax"),
    "gpt2_small": (ZOO["gpt2_small"].build, "relax.nn.gelu_tanh"),
    "vit_small": (ZOO["vit_small"].build, "relax.nn.layer_norm"),
    "convnext_small": (ZOO["convnext_small"].build, "relax.permute_dims"),
    "swin_small": (ZOO["swin_small"].build, "relax.concat"),
    "squeezenet": (squeezenet, "relax.concat"),
    "efficientnet": (partial(efficientnet_b0, size=32), "relax.sigmoid"),
    "yolo": (partial(yolo, size=64, classes=3), "relax.strided_slice"),
    "resnet50": (partial(onnx.load, LIGHT / "light_resnet50.onnx"), "relax.nn.relu"),
    "inception_v1": (partial(onnx.load, LIGHT / "light_inception_v1.onnx"), "relax.nn.max_pool2d"),
    "inception_v2": (partial(onnx.load, LIGHT / "light_inception_v2.onnx"), "relax.nn.avg_pool2d"),
    "densenet121": (partial(onnx.load, LIGHT / "light_densenet121.onnx"), "relax.multiply"),
    "shufflenet": (partial(onnx.load, LIGHT / "light_shufflenet.onnx"), "relax.nn.conv2d"),
}

#: A number, the name of an operator, a name in quotes, or a layout.
VALUE = re.compile(r"\d|relax\.\w|'.+'|\b[NCDHWOI]{3,5}\b")


@cache
def imported(name: str) -> tvm.IRModule:
    return import_onnx(prepare(NETWORKS[name][0]()))


@cache
def whole(name: str) -> Report:
    """Of a partition that leaves nothing to TVM."""
    return partition_with_report(imported(name))[1]


def check(report: Report) -> None:
    """Every operator that is left has a reason with a value, and says what it is about."""
    assert report.left
    for entry in report.left:
        assert VALUE.search(entry.reason), entry
        assert entry.name and entry.op.startswith("relax.") and "->" in entry.shapes, entry


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_skipped_operators(name: str) -> None:
    full = whole(name)
    assert full.left == ()
    skipped = NETWORKS[name][1]
    report = partition_with_report(imported(name), skip_ops=[skipped])[1]
    check(report)
    assert report.operators == full.operators
    reasons = {entry.reason for entry in report.left if entry.op == skipped}
    assert reasons == {f"skipped by operator {skipped}"}


@pytest.mark.parametrize("name", NETWORKS)
def test_only_contractions(name: str) -> None:
    full = whole(name)
    report = partition_with_report(imported(name), only=["conv2d", "matmul"])[1]
    check(report)
    assert report.operators == full.operators
    assert report.offloaded_macs == full.macs
    assert {entry.reason for entry in report.left} == {
        "not among the operators to offload (relax.matmul, relax.nn.conv2d)"
    }


def with_weights_as_inputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every fp32 weight of a convolution as one more input."""
    weights = {node.input[1] for node in model.graph.node if node.op_type == "Conv"}
    kept = [tensor for tensor in model.graph.initializer if tensor.name not in weights]
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            model.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return model


def test_computed_weights() -> None:
    assert _with_weights_as_inputs(squeezenet).left == ()


def test_computed_weights_of_channels() -> None:
    report = _with_weights_as_inputs(partial(convnext, (1,), (16,), 64))
    assert not [entry for entry in report.left if entry.op == "relax.nn.conv2d"]


def _with_weights_as_inputs(build: Build) -> Report:
    return partition_with_report(import_onnx(prepare(with_weights_as_inputs(build()))))[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_operators_of_onnx() -> None:
    """ONNX's own tests are full of dtypes, operators and attributes that no row knows."""
    count = 0
    for case in subset():
        if case.kind == "light":
            continue
        try:
            module = import_onnx(prepare(case.model()))
        except ByocError:  # not importable by TVM, or a shape unknown
            continue
        for entry in partition_with_report(module)[1].left:
            assert VALUE.search(entry.reason), (case.name, entry)
            assert "was not looked at" not in entry.reason, (case.name, entry)
            count += 1
    assert count > 100
