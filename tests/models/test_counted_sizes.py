"""Ranges in steps of all sizes, repeats and flattened axes of open sizes, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import byoc
from tests.reference import onnxruntime_outputs

#: Relative positions l - 1, l - 2, ... 1 - l, of floats as exporters of Conformers write them.
_DOWN = """
  d = Shape(x)
  n = Gather(d, zero)
  less = Sub(n, one)
  first = Cast<to = 1>(less)
  below = Neg(n)
  last = Cast<to = 1>(below)
  r = Range(first, last, minus)
  s = Sin(r)
  column = Unsqueeze(s, one_axis)
  wide = Mul(column, row)
  y = Flatten(wide)
"""

#: As torch.repeat_interleave(w, x.shape[0] // 2, 0) of a fixed w.
_REPEATS = """
  d = Shape(x)
  n = Gather(d, zero)
  n1 = Unsqueeze(n, zero_axis)
  off_on = Concat<axis = 0>(one_axis, n1)
  times = OneHot(places, depth, off_on)
  many = Reshape(times, all)
  w4 = Unsqueeze(w, one_axis)
  t = Tile(w4, many)
  y = Mul(t, factor)
"""

#: As torch.nn.functional.unfold with a stride of 2, and from the last column on in steps of -3.
_STRIDES = """
  d = Shape(x)
  n = Gather(d, one)
  r = Range(zero, n, two)
  a = Gather<axis = 1>(x, r)
  last = Sub(n, one)
  down = Range(last, zero, minus)
  b = Gather<axis = 1>(x, down)
  y = Concat<axis = 1>(a, b)
"""

#: The middles of patches as DINOv3's rotary embedding counts them, 0.5, 1.5, ..., and downwards.
_HALVES = """
  d = Shape(x)
  l = Gather(d, one)
  whole = Div(l, two)
  n = Cast<to = 1>(whole)
  up = Range(half, n, step)
  first = Sub(n, half)
  down = Range(first, none, back)
  both = Mul(up, down)
  column = Unsqueeze(both, one_axis)
  y = Mul(column, row)
"""

_CASES = {
    "halves": (
        _HALVES,
        "int64 one = {1}, int64 two = {2}, float half = {0.5}, float step = {1}, float none = {0},"
        "float back = {-1}, int64[1] one_axis = {1}, float[4] row = {1, 2, 3, -1}",
        [(2, 5), (1, 1), (1, 2), (3, 9)],
    ),
    "strides": (
        _STRIDES,
        "int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 minus = {-3}",
        [(2, 5), (1, 1), (1, 4), (3, 8)],
    ),
    "down": (
        _DOWN,
        "int64 zero = {1}, int64 one = {1}, float minus = {-1}, int64[1] one_axis = {1},"
        "float[4] row = {1, 2, 3, -1}",
        [(1, 5), (1, 1), (2, 9)],
    ),
    "repeats": (
        _REPEATS,
        "int64 zero = {0}, int64[1] zero_axis = {0}, int64[1] one_axis = {1},"
        "int64[1] places = {-2}, int64 depth = {3}, int64[1] all = {-1}, float factor = {0.5},"
        "float[2,3] w = {1, -2, 3, 4, 5, 6}",
        [(1, 4), (3, 4), (7, 2)],
    ),
}


@pytest.mark.parametrize("case", _CASES)
def test_one_region(case: str, tmp_path: Path) -> None:
    nodes, numbers, shapes = _CASES[case]
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[b,l] x) => (float[] y, float[] z)'
        f"<{numbers}> {{ {nodes} z = Abs(x) }}"
    )
    done = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert done.report.left == () and len(done.report.regions) == 1
    with byoc.load(tmp_path / "m.so") as library:
        for shape in shapes:
            x = np.random.default_rng(1).standard_normal(shape).astype("float32")
            want = onnxruntime_outputs(model, {"x": x})
            found = library.run({"x": x})
            for name, value in want.items():
                np.testing.assert_allclose(found[name], value, atol=1e-6)


def test_as_many_places_as_the_last_ones_say(tmp_path: Path) -> None:
    """``arange(ends[:, -1].max()) < ends[:, -1:]``, as where durations of speech are laid out."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (int64[b,t] x) => (bool[b,u] y)'
        "<int64[1] last = {-1}, int64[1] end = {9223372036854775807}, int64[1] axis = {1},"
        " int64 zero = {0}, int64 one = {1}> {"
        " ends = CumSum(x, one) whole = Slice(ends, last, end, axis)"
        " most = ReduceMax<keepdims = 0>(whole) places = Range(zero, most, one)"
        " y = Less(places, whole) }"
    )
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    # The number of places is computed, so that a region ends there.
    assert len(report.regions) == 2
    assert {left.op for left in report.left} == {"relax.reshape", "relax.tensor_to_shape"}
    library = byoc.load(tmp_path / "m.so")
    for shape in ((2, 5), (1, 1), (3, 2)):
        x = np.random.default_rng(0).integers(1, 4, shape)
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_array_equal(library.run({"x": x})["y"], want)
