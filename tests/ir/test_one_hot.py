"""OneHot of indices that are no integers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from byoc.frontends.onnx.backend import prepare
from tests.reference import onnxruntime_outputs


@pytest.mark.parametrize("axis", [-1, 0])
def test_a_fraction_is_no_index(axis: int) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[9] x) => (float[a,b] y)'
        f" <float[2] v = {{2, 7}}, float d = {{5}}> {{ y = OneHot<axis = {axis}>(x, d, v) }}"
    )
    x = np.array([-0.5, 0.5, 1.9, -1.5, -1, -5, -5.5, 4, 5], "float32")
    (got,) = prepare(model).run([x])
    np.testing.assert_array_equal(got, onnxruntime_outputs(model, {"x": x})["y"])
