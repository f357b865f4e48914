"""OneHot of indices that are no integers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from byoc.errors import ImportFailure
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


@pytest.mark.parametrize("depth", [-1, 0])
def test_of_no_class_is_refused(depth: int) -> None:
    """PyTorch's exporter writes a depth of -1 where ``F.one_hot`` counts the classes itself."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (int64[3] x) => (int64[a,b] y)'
        f" <int64[2] v = {{0, 1}}, int64 d = {{{depth}}}> {{ y = OneHot(x, d, v) }}"
    )
    with pytest.raises(ImportFailure, match=r"depth 0; need 1 or more|'depth' must be"):
        prepare(model)
