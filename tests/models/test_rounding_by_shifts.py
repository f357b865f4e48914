"""Networks that round to whole numbers by adding a large one and taking it away again."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import byoc.frontends.onnx.backend as backend
from tests.reference import onnxruntime_outputs

#: Behind it float32 has no digits.
LARGE = f"<float large = {{{1.5 * 2.0**23}}}, float factor = {{3.0}}>"

#: A graph whose result is whole, and the nodes in its region.
CASES = {
    "scaled": ("s = Mul(x, factor) a = Add(s, large) y = Sub(a, large)", 3),
    "scaled again": (
        "s = Mul(x, factor) a = Add(s, large) b = Sub(a, large) c = Mul(b, factor)"
        " y = Add(c, factor)",
        5,
    ),
    "behind a product": ("m = MatMul(x, x) a = Sub(m, large) y = Add(a, large)", 3),
    "behind a product with a weight": (
        "k = ConstantOfShape<value = float[1] {2.3}>(shape) m = MatMul(x, k)"
        " a = Add(m, large) y = Sub(a, large)",
        3,
    ),
    "behind a convolution": (
        "i = Unsqueeze(x, axes) k = ConstantOfShape<value = float[1] {2.3}>(filters)"
        " c = Conv(i, k) a = Add(c, large) y = Sub(a, large)",
        3,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_sums_with_large_numbers_are_computed_where_they_stand(case: str) -> None:
    text, nodes = CASES[case]
    shapes = "int64[2] shape = {6, 4}, int64[2] axes = {0, 1}, int64[4] filters = {3, 1, 1, 1}"
    constants = LARGE.replace("<", f"<{shapes}, ")
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[6, 6] x) => (y) {constants} {{{text}}}'
    )
    x = np.random.default_rng(0).standard_normal((6, 6), np.float32)
    rep = backend.prepare(model, min_bytes=0)
    assert rep.report.offloaded >= nodes, rep.report.offloaded
    (actual,) = rep.run([x])
    (expected,) = onnxruntime_outputs(model, {"x": x}).values()
    assert (expected == np.rint(expected)).all()
    np.testing.assert_array_equal(actual, expected)


def test_differences_of_near_numbers_keep_their_digits() -> None:
    constants = "<float mean = {10000.0}, float factor = {3.0}>"
    steps = "a = Sub(x, mean) b = Mul(a, factor) c = Add(b, factor) y = Mul(c, factor)"
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[6, 6] x) => (y) {constants} {{{steps}}}'
    )
    x = 10000 + np.random.default_rng(0).standard_normal((6, 6), np.float32)
    rep = backend.prepare(model, min_bytes=0)
    assert rep.report.offloaded >= 3, rep.report.offloaded
    (actual,) = rep.run([x])
    expected = 9 * (x.astype(np.float64) - 10000) + 9
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
