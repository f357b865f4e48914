"""Quantised networks beside the networks that they were made from."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import byoc
from tests.layer_errors.networks import perceptron, quantised
from tests.quantised.float_networks import resnet_like
from tests.quantised.networks import reference as onnxruntime
from tests.quantised.test_qoperator import FORMS, quantised_network

logging.getLogger().setLevel(logging.ERROR)  # the quantiser's advice


def make(network, form: str, folder: Path) -> onnx.ModelProto:
    if form == "qdq":
        return onnx.load(quantised(network(), folder))
    return quantised_network(network, folder, form)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["qdq", next(iter(FORMS))])
def test_what_quantisation_loses(form: str, tmp_path: Path) -> None:
    """Every product has a right value, and the output's error is what ONNX Runtime has as well."""
    plain, model = resnet_like(), make(resnet_like, form, tmp_path)
    x = np.random.default_rng(11).normal(size=(1, 3, 32, 32)).astype(np.float32)
    found = byoc.compare(model, {"x": x}, reference=plain, min_bytes=0)
    assert found.report.left == () and "unquantised network" in found.judge
    judged = {name for layer in found.layers for name in layer.names}
    products = [node.name for node in plain.graph.node if node.op_type in ("Conv", "Gemm")]
    assert {name.removesuffix("_quant") for name in judged} >= set(products) and len(products) == 8
    ((name, errors),) = found.outputs.items()
    right, (theirs,) = onnxruntime(plain, {"x": x})[0], onnxruntime(model, {"x": x})
    assert name == plain.graph.output[0].name
    assert errors.mean == pytest.approx(np.abs(theirs - right).mean(), rel=0.2)
    assert all(1e-4 < layer.own.share < 0.5 for layer in found.layers if layer.dtype == "uint8")


@pytest.mark.slow
def test_numbers_are_those_of_what_integers_stand_for(tmp_path: Path) -> None:
    model = make(resnet_like, "qdq", tmp_path)
    x = np.random.default_rng(12).normal(size=(1, 3, 32, 32)).astype(np.float32)
    found = byoc.compare(model, {"x": x}, reference=resnet_like(), min_bytes=0)
    (layer,) = (layer for layer in found.layers if layer.names == ("x_QuantizeLinear",))
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    scale, zero = stored["x_scale"], int(stored["x_zero_point"])
    integers = np.clip(np.rint(x / scale) + zero, 0, 255)
    apart = np.abs((integers - zero) * scale - x)
    assert layer.own.greatest == pytest.approx(apart.max(), rel=1e-4)
    assert layer.own.mean == pytest.approx(apart.mean(), rel=1e-4)
    assert layer.total.share == pytest.approx(apart.max() / np.ptp(x), rel=1e-4)


def test_who_writes_and_reads_a_coarse_scale_are_the_worst(tmp_path: Path) -> None:
    model = make(perceptron, "qdq", tmp_path)
    (scale,) = (t for t in model.graph.initializer if t.name == "relu_8_scale")
    coarse = numpy_helper.to_array(scale) * np.float32(30)
    scale.CopyFrom(numpy_helper.from_array(coarse, scale.name))
    found = byoc.compare(model, reference=perceptron())
    touching = [any("relu_8_" in name for name in layer.names) for layer in found.worst]
    assert touching[:2] == [True, True] and not any(touching[2:])
    assert found.worst[1].own.share > 5 * found.worst[2].own.share
    assert "relu_8_QuantizeLinear" in {name for layer in found.worst[:2] for name in layer.names}


def test_another_network_is_refused(tmp_path: Path) -> None:
    model = make(perceptron, "qdq", tmp_path)
    other = resnet_like()
    with pytest.raises(byoc.VerifyError, match="is in the model or in its reference only"):
        byoc.compare(model, reference=other)
    wide = perceptron()
    for node in wide.graph.node:
        if node.op_type == "Relu":
            node.op_type = "Identity"  # other values of the same names, which is the user's affair
    assert byoc.compare(model, reference=wide).error > 0.05
