"""Resize picks the pixels that ONNX Runtime picks, over sizes and scales.

The image counts its own pixels, so that a result of nearest names the pixel it came from.
"""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import byoc
from codegen_cc.operators.resize2d import taps_of
from tests.reference import onnxruntime_outputs

COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
#: Of an axis, and of its result: multiples, fractions, and what shares no factor.
SIZES = (1, 2, 3, 5, 7, 10, 14, 21, 30, 49, 96, 97, 210, 480, 641, 960)
#: Inverses of what fp32 does not have, and scales that give no whole number.
SCALES = (1 / 7, 1 / 3, 1 / 480, 2 / 3, 0.6, 1.7, 2.5, 3.0, 7.0, 7.5)


def _onnxruntime_of_any_size(coordinate: str, mode: str) -> onnxruntime.InferenceSession:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 19]>'
        " g (float[1, 1, 1, n] x, int64[4] size) => (float[a, b, c, d] y)"
        f' {{ y = Resize<coordinate_transformation_mode = "{coordinate}", {mode}>(x, , , size) }}'
    )
    return onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def _line(extent: int) -> np.ndarray:
    return np.arange(extent, dtype=np.float32).reshape(1, 1, 1, extent)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("coordinate", COORDINATES)
def test_nearest_pixels_of_sizes(coordinate: str, rounding: str) -> None:
    session = _onnxruntime_of_any_size(coordinate, f'nearest_mode = "{rounding}"')
    attrs = {"method": "nearest", "coordinate": coordinate, "rounding": rounding, "divided": True}
    for extent, count in itertools.product(SIZES, SIZES):
        sizes = {"x": _line(extent), "size": np.array([1, 1, 1, count])}
        (want,) = session.run(None, sizes)
        at, _ = taps_of(extent, count, attrs)
        np.testing.assert_array_equal(at[:, 0], want.ravel(), err_msg=f"{extent} -> {count}")


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("coordinate", COORDINATES)
def test_weights_of_sizes(coordinate: str, mode: str) -> None:
    """Of sines, which are no larger than 1: positions that are off by a little would show."""
    session = _onnxruntime_of_any_size(coordinate, f'mode = "{mode}"')
    attrs = {"method": mode, "coordinate": coordinate, "divided": True}
    attrs |= {"cubic_alpha": -0.75, "cubic_exclude": False}
    for extent, count in itertools.product(SIZES, SIZES):
        x = np.sin(_line(extent) * 2)
        (want,) = session.run(None, {"x": x, "size": np.array([1, 1, 1, count])})
        at, weight = taps_of(extent, count, attrs)
        got = (x.ravel()[at] * weight).sum(1)
        np.testing.assert_allclose(got, want.ravel(), atol=1e-5, err_msg=f"{extent} -> {count}")


def _by_scales(shape: str, attributes: str) -> str:
    """The text of a model: a result for each of the ``SCALES``, along height or width by turns."""
    constants, nodes, results = [], [], []
    for number, scale in enumerate(SCALES):
        both = f"1, {scale!r}" if number % 2 else f"{scale!r}, 1"
        constants.append(f"float[4] s{number} = {{1, 1, {both}}}")
        nodes.append(f"y{number} = Resize<{attributes}>(x, , s{number})")
        results.append(f"float[a{number}, b{number}, c{number}, d{number}] y{number}")
    return (
        f'<ir_version: 8, opset_import: ["": 19]> g (float[{shape}] x) => ({", ".join(results)})'
        f" <{', '.join(constants)}> {{ {' '.join(nodes)} }}"
    )


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("coordinate", ["half_pixel", "half_pixel_symmetric", "asymmetric"])
def test_nearest_pixels_of_scales(coordinate: str, rounding: str, tmp_path) -> None:
    attributes = f'coordinate_transformation_mode = "{coordinate}", nearest_mode = "{rounding}"'
    model = parser.parse_model(_by_scales("1, 1, 490, 960", attributes))
    x = np.arange(490 * 960, dtype=np.float32).reshape(1, 1, 490, 960)
    made = byoc.compile(model, tmp_path / "m.so")
    assert not made.report.left
    got = byoc.load(tmp_path / "m.so").run({"x": x})
    for name, want in onnxruntime_outputs(model, {"x": x}).items():
        np.testing.assert_array_equal(got[name], want, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("coordinate", ["half_pixel", "half_pixel_symmetric", "asymmetric"])
def test_weights_of_scales(coordinate: str, mode: str, tmp_path) -> None:
    attributes = f'coordinate_transformation_mode = "{coordinate}", mode = "{mode}"'
    model = parser.parse_model(_by_scales("1, 1, 490, 480", attributes))
    x = np.sin(np.arange(490 * 480, dtype=np.float32) * 2).reshape(1, 1, 490, 480)
    made = byoc.compile(model, tmp_path / "m.so")
    assert not made.report.left
    got = byoc.load(tmp_path / "m.so").run({"x": x})
    for name, want in onnxruntime_outputs(model, {"x": x}).items():
        np.testing.assert_allclose(got[name], want, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_nearest_pixels_of_open_sizes(rounding: str, tmp_path) -> None:
    """The tables are filled at the call, by the same arithmetic."""
    modes = f'coordinate_transformation_mode = "asymmetric", nearest_mode = "{rounding}"'
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 19]>'
        " g (float[1, 1, h, w] x) => (float[1, 1, m, n] y, float[1, 1, p, q] z)"
        f" <float[4] s = {{1, 1, {1 / 7!r}, {1 / 30!r}}}, float[4] t = {{1, 1, 7, 3}}>"
        f" {{ y = Resize<{modes}>(x, , s) z = Resize<{modes}>(x, , t) }}"
    )
    made = byoc.compile(model, tmp_path / "m.so", {"x": [1, 1, "7*h", "30*w"]})
    assert not made.report.left
    library = byoc.load(tmp_path / "m.so")
    for height, width in ((7, 30), (49, 90), (490, 960), (217, 1500)):
        x = np.arange(height * width, dtype=np.float32).reshape(1, 1, height, width)
        for name, want in onnxruntime_outputs(model, {"x": x}).items():
            np.testing.assert_array_equal(library.run({"x": x})[name], want, err_msg=name)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_a_small_resize_stays_where_tvm_picks_other_pixels(rounding: str, tmp_path) -> None:
    """Five pixels are too little work for a region otherwise."""
    modes = f'coordinate_transformation_mode = "half_pixel", nearest_mode = "{rounding}"'
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 19]> g (float[1, 1, 1, 60] x) => (float[1, 1, 1, n] y)'
        f" <float[4] s = {{1, 1, 1, {1 / 12!r}}}> {{ y = Resize<{modes}>(x, , s) }}"
    )
    byoc.compile(model, tmp_path / "m.so")
    got = byoc.load(tmp_path / "m.so").run({"x": _line(60)})
    np.testing.assert_array_equal(got["y"], onnxruntime_outputs(model, {"x": _line(60)})["y"])
