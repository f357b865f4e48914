"""Sums and means of squares: one pass over the operand, whose squares are not stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import byoc
from tests.reference import onnxruntime_outputs

#: Nodes from x to y, and the kind that sums.
_FORMS = {
    "ReduceL2": ("y = ReduceL2<keepdims = 0>(x, last)", "reduce_sum_squares"),
    "ReduceSumSquare": ("y = ReduceSumSquare(x, middle)", "reduce_sum_squares"),
    "product": ("s = Mul(x, x) y = ReduceSum<keepdims = 0>(s, last)", "reduce_sum_squares"),
    "power": ("s = Pow(x, two) y = ReduceMean(s, last)", "reduce_mean_squares"),
    "all axes": ("s = Mul(x, x) y = ReduceMean<keepdims = 0>(s)", "reduce_mean_squares"),
    "unit length": ("n = ReduceL2(x, last) y = Div(x, n)", "reduce_sum_squares"),
    "of a sum": ("a = Add(x, two) s = Mul(a, a) y = ReduceSum(s, middle)", "reduce_sum_squares"),
}


def _model(nodes: str, dtype: str = "float", batch: str = "n") -> onnx.ModelProto:
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g ({dtype}[{batch}, 7, 80] x) => ({dtype}[] y)
        <{dtype} two = {{2}}, int64[1] last = {{2}}, int64[1] middle = {{1}}> {{ {nodes} }}"""
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize("form", _FORMS)
def test_squares_are_summed_in_one_pass(form: str, tmp_path: Path) -> None:
    nodes, kind = _FORMS[form]
    model = _model(nodes)
    report = byoc.compile(model, tmp_path / "m.so").report
    found = {node.operator for node in report.graph.nodes}
    assert report.left == () and f"ext.{kind}" in found and not {"ext.mul", "ext.pow"} & found
    library = byoc.load(tmp_path / "m.so")
    for n in (1, 3):
        x = np.random.default_rng(n).standard_normal((n, 7, 80), np.float32)
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_allclose(library.run({"x": x})["y"], want, 2e-6)


@pytest.mark.parametrize(
    ("nodes", "dtype"),
    [
        ("s = Mul(x, x) t = ReduceSum(s, last) y = Div(s, t)", "float"),
        ("s = Mul(x, x) y = ReduceSum(s, last)", "int32"),
        ("s = Mul(x, two) y = ReduceSum(s, last)", "float"),
    ],
    ids=["squares are read", "integers", "not its square"],
)
def test_others_stay_apart(nodes: str, dtype: str, tmp_path: Path) -> None:
    model = _model(nodes, dtype, "2")
    report = byoc.compile(model, tmp_path / "m.so").report
    found = {node.operator for node in report.graph.nodes}
    assert report.left == () and {"ext.mul", "ext.reduce_sum"} <= found
    x = np.random.default_rng(0).uniform(-90, 90, (2, 7, 80)).astype(dtype.replace("float", "f4"))
    want = onnxruntime_outputs(model, {"x": x})["y"]
    np.testing.assert_allclose(byoc.load(tmp_path / "m.so").run({"x": x})["y"], want, 2e-6)


def test_squares_beyond_the_range_are_infinite(tmp_path: Path) -> None:
    model = _model(_FORMS["ReduceSumSquare"][0], batch="2")
    byoc.compile(model, tmp_path / "m.so")
    x = np.ones((2, 7, 80), np.float32)
    x[0, 3, 0], x[0, 1, 5], x[1, 6, 79] = 1e30, np.nan, -np.inf
    with np.errstate(over="ignore"):
        want = onnxruntime_outputs(model, {"x": x})["y"]
    np.testing.assert_array_equal(byoc.load(tmp_path / "m.so").run({"x": x})["y"], want)
