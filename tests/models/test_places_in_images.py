"""Heads that take the k best pixels of an image without sizes, and tell their rows and columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import byoc
from tests.reference import onnxruntime_outputs

SIZES = [(1, 4, 5), (3, 2, 2), (2, 1, 9)]


def test_rows_and_columns_of_the_best_pixels(tmp_path: Path) -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, 2, h, w] x) => (float[n, 4] v, int64[n, 4] c, int64[n, 4] r, int64[n, 4] q)
        <float[2, 2, 1, 1] k = {1, -2, 0.5, 3}, int64[1] four = {4}, int64[2] rows = {0, -1},
         int64 two = {2}, int64 three = {3}> {
          y = Conv(x, k)
          line = Reshape(y, rows)
          v, i = TopK(line, four)
          s = Shape(y)
          h = Gather(s, two)
          w = Gather(s, three)
          hw = Mul(h, w)
          c = Div(i, hw)
          place = Mod(i, hw)
          r = Div(place, w)
          q = Mod(place, w)
        }"""
    )
    report = byoc.compile(model, tmp_path / "m.so").report
    assert report.left == ()
    assert len(report.regions) == 1
    library = byoc.load(tmp_path / "m.so")
    for n, h, w in SIZES:
        x = np.random.default_rng(n).standard_normal((n, 2, h, w), np.float32)
        found = library.run({"x": x})
        for name, want in onnxruntime_outputs(model, {"x": x}).items():
            if want.dtype == np.int64:
                np.testing.assert_array_equal(found[name], want)
            else:
                np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operator", ["Div", "Mod"])
@pytest.mark.parametrize("less", [0, 3])
def test_numbers_of_either_sign_by_sizes(operator: str, less: int, tmp_path: Path) -> None:
    # t - 3 may be below 0, and 0: numbers by 0 are 0, and so are the remainders.
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[t, 8] x, int64[m] numbers) => (float[t, 8] y, int64[m] q)
        <int64[1] less = {{{less}}}> {{
          y = Relu(x)
          size = Shape<start = 0, end = 1>(y)
          by = Sub(size, less)
          q = {operator}(numbers, by)
        }}"""
    )
    byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    library = byoc.load(tmp_path / "m.so")
    numbers = np.array([-(2**63), -7, -4, -1, 0, 1, 4, 7, 2**63 - 1])
    for t in (0, 1, 2, 3, 4, 7)[bool(less) :]:
        by = t - less
        inputs = {"x": np.ones((t, 8), np.float32), "numbers": numbers}
        found = library.run(inputs)["q"]
        if by in (0, -1):  # ONNX Runtime divides by 0, and beyond the range
            assert by != 0 or not found.any()
            continue
        np.testing.assert_array_equal(found, onnxruntime_outputs(model, inputs)["q"])
