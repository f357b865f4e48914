"""Clip with bounds that are given, computed, or left out."""

from __future__ import annotations

import numpy as np
import pytest

import byoc.frontends.onnx.backend as backend
from tests.reference import onnxruntime_outputs

from .graphs import random
from .test_imported_operators import check, model_of

SPECIAL = np.array([[-np.inf, -3e38, -2.0, -0.0, 0.3, 3e38, np.inf, np.nan]], np.float32)


def test_clip_with_variable_bounds() -> None:
    x, low, high = random(3, 4), np.array(-0.5, "float32"), np.array(0.3, "float32")
    nan = "ext.compare_not_equal"
    expected = [nan, "ext.where", nan, "ext.max", "ext.where", "ext.min"]
    check(model_of("Clip", [x, low, high], []), expected, x, low, high)


@pytest.mark.parametrize("bounds", [("min",), ("max",), ("min", "max"), ()])
@pytest.mark.parametrize("opset", [6, 10])
def test_bounds_that_are_left_out_of_attributes(opset: int, bounds: tuple[str, ...]) -> None:
    """They are the least and the greatest float, which infinities become."""
    given = {name: value for name, value in (("min", -0.5), ("max", 0.4)) if name in bounds}
    model = model_of("Clip", [SPECIAL], [], opset=opset, **given)
    compiled = backend.prepare(model, min_bytes=0)
    assert compiled.report.left == () and compiled.report.offloaded > 0
    (want,) = onnxruntime_outputs(model, {"x0": SPECIAL}).values()
    np.testing.assert_array_equal(compiled.run([SPECIAL])[0], want)
