"""Weights whose scales are below 0, as NNCF writes symmetric ones: offloaded, and the numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import byoc
from byoc.errors import ByocError
from byoc.frontends.onnx.exact_reference import exact_session
from tests.quantised.networks import Quantised, assert_alike, reference


def signed_weight(net: Quantised, *shape: int, axis: int, zero: bool) -> str:
    """All integers of int8; every other scale is below 0, and no zero point if not ``zero``."""
    values = net.draw.integers(-128, 128, shape).astype(np.int8)
    scale = net.draw.uniform(0.002, 0.02, shape[axis]).astype(np.float32)
    scale[::2] *= -1
    names = [net.constant(values), net.constant(scale)]
    names += [net.constant(np.zeros(shape[axis], np.int8))] if zero else []
    return net.op("DequantizeLinear", *names, axis=axis)


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid"])
@pytest.mark.parametrize("quantised", [True, False])
@pytest.mark.parametrize("kind", ["Conv", "MatMul", "Gemm"])
def test_scales_below_zero(kind: str, quantised: bool, activation: str, tmp_path: Path) -> None:
    net = Quantised(3)
    shape = (2, 8, 9, 9) if kind == "Conv" else (5, 32)
    y = net.input(*shape)
    y = net.there_and_back(y, 0.03) if quantised else y
    if kind == "Conv":
        weight = signed_weight(net, 16, 8, 3, 3, axis=0, zero=True)
        y = net.op("Conv", y, weight, pads=[1] * 4)
    elif kind == "Gemm":
        y = net.op("Gemm", y, signed_weight(net, 16, 32, axis=0, zero=True), transB=1)
    else:
        y = net.op("MatMul", y, signed_weight(net, 32, 16, axis=1, zero=True))
    y = net.op(activation, y)
    y = net.there_and_back(y, 0.01) if quantised else y
    model = net.model(y)
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    assert any("int8" in use.algorithm for use in report.kernels) or not quantised
    inputs = {"x0": net.draw.standard_normal(shape).astype(np.float32)}
    (found,) = byoc.load(tmp_path / "m.so").run(inputs).values()
    assert_alike(found, *reference(model, inputs))


def test_data_with_a_scale_below_zero_is_refused() -> None:
    """Bytes in the same order as their values may be compared as bytes."""
    net = Quantised()
    whole = net.quantize(net.input(2, 3), 0.1)
    model = net.model(net.dequantize(whole, -0.1, np.uint8(128)))
    with pytest.raises(ByocError, match=r"scale -0\.1; need finite ones of 0 or more"):
        byoc.compile(model)


def test_a_reference_without_a_zero_point() -> None:
    """ONNX Runtime makes such weights uint8, with one zero point where it needs one a channel."""
    net = Quantised()
    product = net.op("MatMul", net.input(5, 32), signed_weight(net, 32, 16, axis=1, zero=False))
    model = net.model(product)
    x = net.draw.standard_normal((5, 32)).astype(np.float32)
    values, scale = (numpy_helper.to_array(t) for t in model.graph.initializer)
    before = onnx.ModelProto.FromString(model.SerializeToString())
    (found,) = exact_session(model).run(None, {"x0": x})
    # With fusions it rounds the data to bytes, too.
    wanted = x @ (values.astype(np.float32) * scale)
    assert np.abs(found - wanted).max() <= 0.02 * np.abs(wanted).max()
    assert model == before
