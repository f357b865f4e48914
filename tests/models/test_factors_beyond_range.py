"""Factors that float32 holds one by one, and not multiplied by each other."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import byoc.frontends.onnx.backend as backend

#: The results, and the least number of nodes in the region.
CASES = {
    "in a row": ("a = Mul(x, most) y = Mul(a, most)", 2),
    "with a shift": ("a = Mul(x, most) b = Mul(a, most) y = Add(b, most)", 3),
    "behind a product": ("a = MatMul(x, weight) y = Mul(a, most)", 2),
    "behind a product, small": ("h = Mul(x, most) a = MatMul(h, small) y = Mul(a, least)", 2),
    "before a product": ("h = Mul(x, most) y = MatMul(h, weight)", 2),
    "of queries and keys": (
        "q = Mul(x, most) t = Transpose<perm = [1, 0]>(x) k = Mul(t, most) s = MatMul(q, k)"
        " p = Softmax<axis = -1>(s) y = MatMul(p, one)",
        6,
    ),
}


def _matrix(value: str) -> str:
    return "{" + ", ".join([value] * 16) + "}"


@pytest.mark.parametrize("case", CASES)
def test_they_stay_apart(case: str) -> None:
    text, nodes = CASES[case]
    constants = (
        f"float[4, 4] weight = {_matrix('1e25')}, float[4, 4] small = {_matrix('1e-25')},"
        " float most = {1e25}, float least = {1e-25}"
    )
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        f" g (float[4, 4] x, float[4, 4] one) => (y) <{constants}> {{{text}}}"
    )
    x = np.random.default_rng(0).standard_normal((4, 4), np.float32) * np.float32(1e-25)
    x[0] = 0
    inputs = {"x": x, "one": np.eye(4, dtype=np.float32)}
    rep = backend.prepare(model, min_bytes=0)
    assert rep.report.offloaded >= nodes, rep.report.offloaded
    (actual,) = rep.run(list(inputs.values()))
    (expected,) = ReferenceEvaluator(model).run(None, inputs)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())
