"""Functions of one quantised tensor are looked up: one kernel, and right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import byoc
from tests.quantised.networks import MIDDLE, Quantised, assert_alike, reference


def gelu(net: Quantised, x: str, zero) -> str:
    """As ONNX Runtime quantises it: integers between all of its pieces."""
    gate = net.there_and_back(net.op("Div", x, net.constant(np.float32(1.41421356))), 0.03, zero)
    gate = net.there_and_back(net.op("Erf", gate), 0.008, zero)
    gate = net.there_and_back(net.op("Add", gate, net.constant(np.float32(1))), 0.016, zero)
    both = net.there_and_back(net.op("Mul", x, gate), 0.06, zero)
    return net.op("Mul", both, net.constant(np.float32(0.5)))


def single(kind: str) -> Callable[[Quantised, str, object], str]:
    return lambda net, x, zero: net.op(kind, x)


FUNCTIONS = {
    "gelu": gelu,
    "sigmoid": single("Sigmoid"),
    "tanh": single("Tanh"),
    "relu": single("Relu"),
    "requantised": lambda net, x, zero: x,
    "square": lambda net, x, zero: net.op("Mul", x, x),
}


@pytest.mark.parametrize("zero", [MIDDLE, np.uint8(0), np.int8(-7)], ids=repr)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_functions_are_looked_up(function, zero, tmp_path: Path) -> None:
    net = Quantised()
    x = net.there_and_back(net.input(3, 7, 41), 0.025, zero)
    model = net.model(net.quantize(function(net, x, zero), 0.031, np.uint8(9)))
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    assert {use.algorithm for use in report.kernels} == {"quantize", "lookup"}
    inputs = {"x0": np.linspace(-4, 4, 3 * 7 * 41, dtype=np.float32).reshape(3, 7, 41)}
    (found,) = byoc.load(tmp_path / "m.so").run(inputs).values()
    assert_alike(found, reference(model, inputs)[0])


def test_functions_of_two_tensors_are_not(tmp_path: Path) -> None:
    net = Quantised()
    x, z = (net.there_and_back(net.input(5, 33), 0.025) for _ in range(2))
    model = net.model(net.quantize(net.op("Add", net.op("Tanh", x), z), 0.04))
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert report.left == () and "lookup" not in {use.algorithm for use in report.kernels}
    draw = np.random.default_rng(0)
    inputs = {name: draw.standard_normal((5, 33)).astype(np.float32) for name in ("x0", "x1")}
    (found,) = byoc.load(tmp_path / "m.so").run(inputs).values()
    assert_alike(found, reference(model, inputs)[0])


def test_what_else_reads_the_float_keeps_it(tmp_path: Path) -> None:
    net = Quantised()
    x = net.there_and_back(net.input(4, 70), 0.025)
    y = net.op("Sigmoid", x)
    model = net.model(net.quantize(y, 0.004), net.op("Softmax", y))
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert report.left == () and "lookup" in {use.algorithm for use in report.kernels}
    inputs = {"x0": np.random.default_rng(1).standard_normal((4, 70)).astype(np.float32)}
    for found, wanted in zip(
        byoc.load(tmp_path / "m.so").run(inputs).values(), reference(model, inputs), strict=True
    ):
        assert_alike(found, wanted)
