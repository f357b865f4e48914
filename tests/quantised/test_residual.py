"""Sums of a product's result and another tensor, both quantised: in the product's own kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import byoc
from tests.quantised.networks import MIDDLE, Quantised, assert_alike
from tests.quantised.test_products import algorithms


def block(
    kind: str = "conv",
    scales: tuple[float, float, float] = (0.041, 0.037, 0.0523),
    zeros: tuple = (np.uint8(120), np.uint8(0), np.uint8(3)),
    relu: bool = True,
    outputs: int = 24,
    whole: bool = True,
) -> onnx.ModelProto:
    """A product, another tensor that is added to it, and what follows: integers, or floats."""
    net = Quantised(opset=21)
    if kind == "matmul":
        x = net.there_and_back(net.input(3, 7, 40), 0.03)
        y = net.op("Add", net.op("MatMul", x, net.weight(40, outputs, axis=1)), net.bias(outputs))
        shape = (3, 7, outputs)
    else:
        x = net.there_and_back(net.input(2, outputs if kind == "depthwise" else 16, 9, 7), 0.03)
        depthwise = {"group": outputs} if kind == "depthwise" else {}
        weight = net.weight(outputs, 1 if depthwise else 16, 3, 3)
        y = net.op("Conv", x, weight, net.bias(outputs), pads=[1] * 4, **depthwise)
        shape = (2, outputs, 9, 7)
    y = net.there_and_back(y, scales[0], zeros[0])
    other = net.there_and_back(net.input(*shape), scales[1], zeros[1])
    y = net.op("Add", other, y)
    if relu:
        y = net.op("Relu", y)
    return net.model(net.quantize(y, scales[2], zeros[2]) if whole else y)


def check(model: onnx.ModelProto, folder: Path) -> byoc.Compiled:
    """All in one region, and results as ONNX's reference evaluator has them."""
    compiled = byoc.compile(model, folder / "m.so", min_bytes=0)
    assert compiled.report.left == () and len(compiled.report.regions) == 1
    draw = np.random.default_rng(1)
    inputs = {
        value.name: draw.normal(
            0, 2, [d.dim_value for d in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in model.graph.input
    }
    found = byoc.load(folder / "m.so").run(inputs).values()
    for got, want in zip(found, ReferenceEvaluator(model).run(None, inputs), strict=True):
        assert_alike(got, want)
    return compiled


FORMS = {
    "conv": block(),
    "without relu": block(relu=False),
    "int8": block(zeros=(np.int8(-5), np.int8(9), np.int8(-128))),
    "mixed": block(zeros=(MIDDLE, np.int8(0), np.uint8(0))),
    "halves": block(scales=(0.05, 0.05, 0.1), relu=False),  # every second sum lies in the middle
    "wide": block(outputs=70),
    "depthwise": block("depthwise"),
    "matmul": block("matmul"),
    "to floats": block(whole=False),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_residual_is_added_in_the_products_kernel(name: str, tmp_path: Path) -> None:
    compiled = check(FORMS[name], tmp_path)
    names = algorithms(compiled)
    assert "binary, int8" not in names and "binary" not in names
    assert [name for name in names if name.endswith("int8")]
    assert compiled.report.offloaded_macs == compiled.report.macs > 0


def test_the_later_of_two_products_adds_the_other(tmp_path: Path) -> None:
    net = Quantised(opset=21)
    x = net.there_and_back(net.input(1, 16, 6, 6), 0.03)
    one = net.op("Conv", x, net.weight(32, 16, 1, 1), net.bias(32))
    two = net.op("Conv", x, net.weight(32, 16, 1, 1), net.bias(32))
    a, b = (net.there_and_back(y, scale) for y, scale in ((one, 0.05), (two, 0.07)))
    y = net.quantize(net.op("Relu", net.op("Add", a, b)), 0.06, np.uint8(0))
    compiled = check(net.model(y), tmp_path)
    (use,) = [use for use in compiled.report.kernels if use.algorithm.endswith("int8")]
    assert use.nodes == 2


def test_a_result_that_others_read_stays_one(tmp_path: Path) -> None:
    net = Quantised(opset=21)
    x = net.there_and_back(net.input(1, 16, 6, 6), 0.03)
    y = net.quantize(net.op("Conv", x, net.weight(16, 16, 1, 1), net.bias(16)), 0.05)
    added = net.op("Add", net.dequantize(y, 0.05, MIDDLE), x)
    model = net.model(net.quantize(added, 0.06), y)
    assert "binary, int8" in algorithms(check(model, tmp_path))


def test_a_joined_product_gets_the_parameters_of_the_whole(tmp_path: Path) -> None:
    """Its kernel rounds twice, as the model does, and writes its part of the whole."""
    net = Quantised(opset=21)
    x = net.there_and_back(net.input(1, 16, 6, 6), 0.03)
    parts = []
    for scale in (0.05, 0.08):
        y = net.op("Relu", net.op("Conv", x, net.weight(32, 16, 1, 1), net.bias(32)))
        parts.append(net.there_and_back(y, scale, np.uint8(0)))
    model = net.model(net.quantize(net.op("Concat", *parts, axis=1), 0.08, np.uint8(0)))
    compiled = check(model, tmp_path)
    uses = {use.algorithm: use.nodes for use in compiled.report.kernels}
    assert uses == {"quantize": 1, "GEMM, int8": 2, "concat": 1}
