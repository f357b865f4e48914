"""Pools that name their padding, with dilations and rounded up, against ONNX Runtime."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import parser

import byoc
from tests.ir.test_own_converters import One, check, normal
from tests.reference import onnxruntime_outputs

PADDING = ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
def test_padding_dilations_and_rounding_up(operator: str) -> None:
    """ONNX Runtime pads by name as if windows were not dilated; its results are smaller then."""
    ones = []
    choices = itertools.product(PADDING, (1, 3), (1, 2, 3), (2, 3), (0, 1), (7, 8))
    for number, (name, gap, step, taps, up, extent) in enumerate(choices):
        attributes: dict[str, Any] = {"kernel_shape": [taps], "strides": [step], "auto_pad": name}
        attributes |= {"dilations": [gap], "ceil_mode": up}
        if name == "NOTSET":
            attributes["pads"] = [taps - 1, taps - 2]
        if operator == "AveragePool":
            attributes["count_include_pad"] = number // 2 % 2
        ones.append(One(operator, {"x": normal(1, 1, extent)}, attributes=attributes))
    check(ones)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
def test_dilated_pools_of_images_of_open_size(operator: str, tmp_path) -> None:
    modes = 'kernel_shape = [3, 2], dilations = [2, 3], auto_pad = "SAME_UPPER"'
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 19]>'
        " g (float[n, 8, h, 24] x) => (float[n, 8, a, b] y)"
        f" {{ y = {operator}<{modes}>(x) }}"
    )
    made = byoc.compile(model, tmp_path / "m.so", {"x": ["n", 8, "h", 24]})
    assert not made.report.left
    library = byoc.load(tmp_path / "m.so")
    for batch, height in ((1, 9), (2, 16)):
        x = normal(batch, 8, height, 24)
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_allclose(library.run({"x": x})["y"], want, rtol=1e-5, atol=1e-6)


def test_partial_windows_of_an_open_batch(tmp_path) -> None:
    """The last window of LpPool has three rows of four, and is no mean of these."""
    modes = "kernel_shape = [4, 2], strides = [3, 1], ceil_mode = 1, p = 2"
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]>'
        f" g (float[n, 1, 9, 7] x) => (float[n, 1, a, b] y) {{ y = LpPool<{modes}>(x) }}"
    )
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and made.metadata.inputs[0].shape == ("n", 1, 9, 7)
    library = byoc.load(tmp_path / "m.so")
    for batch in (1, 3):
        x = normal(batch, 1, 9, 7)
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_allclose(library.run({"x": x})["y"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("modes", "shape", "after"),
    [
        ("kernel_shape = [90, 90], strides = [90, 90]", "n, 8", "Reshape(m, s)"),
        ("kernel_shape = [4, 2], strides = [3, 5], pads = [1, 0, 2, 1]", "n, 8, a, b", "Neg(m)"),
    ],
    ids=["wide", "padded"],
)
def test_means_that_count_padding_rounded_up_over_open_sizes(
    modes: str, shape: str, after: str, tmp_path
) -> None:
    """One wide window in place of a mean over all, as in EfficientNet; zeros around the image."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 19]>'
        f" g (float[n, 8, h, w] x) => (float[{shape}] y)"
        " { q = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)"
        f" m = AveragePool<{modes}, ceil_mode = 1, count_include_pad = 1>(q)"
        f" s = Shape<start = 0, end = 2>(x) y = {after} }}"
    )
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert not made.report.left and len(made.report.regions) == 1
    library = byoc.load(tmp_path / "m.so")
    for sizes in ((1, 8, 12, 19), (2, 8, 32, 27), (1, 8, 80, 160)):
        x = normal(*sizes)
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_allclose(library.run({"x": x})["y"], want, rtol=1e-5, atol=1e-6)
