"""Distances between rows: as broadcasting computes them, and as the Scan that skl2onnx writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import byoc
from tests.reference import onnxruntime_outputs

NEIGHBOURS, FEATURES = 40, 6

#: Statements of the body of a Scan from ``x`` and ``row`` to ``y``.
METRICS = {
    "squares": "d = Sub(x, row) y = ReduceSumSquare<keepdims = 0>(d, one)",
    "turned round": "d = Sub(row, x) y = ReduceSumSquare<keepdims = 0>(d, one)",
    "euclidean": "d = Sub(x, row) s = ReduceSumSquare<keepdims = 0>(d, one) y = Sqrt(s)",
    "manhattan": "d = Sub(x, row) a = Abs(d) y = ReduceSum<keepdims = 0>(a, one)",
    "minkowski": "d = Sub(x, row) a = Abs(d) p = Pow(a, three)"
    " s = ReduceSum<keepdims = 0>(p, one) y = Pow(s, third)",
    "farthest": "d = Sub(x, row) a = Abs(d) y = ReduceMax<keepdims = 0>(a, one)",
}

#: Those of which the kernel knows the sum.
KERNEL = ("squares", "turned round", "euclidean", "manhattan")


def _scan(body: str, rows: int = NEIGHBOURS) -> onnx.ModelProto:
    numbers = np.random.default_rng(0).uniform(-1, 1, rows * FEATURES)
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, {FEATURES}] given) => (float[n, {rows}] distances)
        <float[{rows}, {FEATURES}] known = {{{", ".join(map(str, numbers))}}}>
        {{
          last, all = Scan <num_scan_inputs = 1, body = round (
            float[k, {FEATURES}] x, float[{FEATURES}] row
          ) => (float[k, {FEATURES}] same, float[k] y)
          <int64[1] one = {{1}}, float three = {{3}}, float third = {{0.33333334}}> {{
            same = Identity(x) {body}
          }}> (given, known)
          distances = Transpose<perm = [1, 0]>(all)
        }}"""
    )


def _check(model: onnx.ModelProto, tmp_path: Path, kernel: bool) -> None:
    report = byoc.compile(model, tmp_path / "m.so").report
    assert report.left == ()
    assert len(report.regions) == 1
    assert ("distances" in {use.algorithm for use in report.kernels}) == kernel, report.kernels
    library = byoc.load(tmp_path / "m.so")
    for n in (0, 1, 5, 67):
        x = np.random.default_rng(n).standard_normal((n, FEATURES), np.float32)
        inputs = {model.graph.input[0].name: x}
        want = onnxruntime_outputs(model, inputs)["distances"]
        found = library.run(inputs)["distances"]
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_rounds_side_by_side(metric: str, tmp_path: Path) -> None:
    _check(_scan(METRICS[metric]), tmp_path, metric in KERNEL)


@pytest.mark.parametrize("rows", [1, 129, 300])
def test_however_many_rounds(rows: int, tmp_path: Path) -> None:
    _check(_scan(METRICS["squares"], rows), tmp_path, rows > 1)


def test_points_that_are_near_keep_their_digits(tmp_path: Path) -> None:
    # |a|^2 - 2 a b + |b|^2 of numbers about 1000 would be wrong by about 0.1.
    model = _scan(METRICS["squares"])
    byoc.compile(model, tmp_path / "m.so")
    known = onnx.numpy_helper.to_array(model.graph.initializer[0])
    x = (known + 1e-3).astype(np.float32)
    found = byoc.load(tmp_path / "m.so").run({"given": x})["distances"]
    np.testing.assert_allclose(np.diag(found), FEATURES * 1e-6, rtol=1e-3)


BROADCAST = {
    "columns last": ("[n, 6, 1]", "[1, 6, 7]", 1),
    "rows last": ("[1, 6, n]", "[7, 6, 1]", 1),
    "summed last": ("[n, 1, 6]", "[1, 7, 6]", 2),
    "of two axes": ("[n, 1, 6]", "[7, 6]", 2),
    "rows of two axes": ("[6, n]", "[7, 6, 1]", 1),
    "summed first": ("[6, n, 1]", "[6, 1, 7]", 0),
}


@pytest.mark.parametrize("form", BROADCAST)
def test_broadcast_differences(form: str, tmp_path: Path) -> None:
    x, known, axis = BROADCAST[form]
    numbers = ", ".join(map(str, np.random.default_rng(0).uniform(-1, 1, 42)))
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float{x} x) => (float[a, b] y)
        <float{known} known = {{{numbers}}}, int64[1] axis = {{{axis}}}> {{
          d = Sub(known, x)
          q = Mul(d, d)
          y = ReduceSum<keepdims = 0>(q, axis)
        }}"""
    )
    report = byoc.compile(model, tmp_path / "m.so").report
    assert {use.algorithm for use in report.kernels} >= {"distances"}, report.kernels
    library = byoc.load(tmp_path / "m.so")
    for n in (0, 1, 5, 33):
        shape = [n if extent == "n" else int(extent) for extent in x[1:-1].split(", ")]
        inputs = {"x": np.random.default_rng(n).standard_normal(shape, np.float32)}
        want = onnxruntime_outputs(model, inputs)["y"]
        np.testing.assert_allclose(library.run(inputs)["y"], want, rtol=1e-5, atol=1e-6)
