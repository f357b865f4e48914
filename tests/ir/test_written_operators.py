"""Operators that are written as a few others: what asks for infinity, and bits that are turned."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import byoc.frontends.onnx.backend as backend
from tests.reference import onnxruntime_outputs

SPECIAL = np.array([np.inf, -np.inf, np.nan, 0, -0.0, 1e-30, -1e-8, 88.9, -89.3, 90], "float32")


def test_what_is_widened_is_told_as_it_is() -> None:
    """PyTorch's older exporter casts to float64 before IsInf, as in isfinite and nan_to_num."""
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("IsInf", ["wide"], ["inf"]),
        helper.make_node("IsNaN", ["wide"], ["nan"]),
    ]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [SPECIAL.size])
    results = [helper.make_tensor_value_info(n, TensorProto.BOOL, None) for n in ("inf", "nan")]
    graph = helper.make_graph(nodes, "special", [value], results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    rep = backend.prepare(model, min_bytes=0)
    found = rep.run([SPECIAL])
    assert rep.report.left == () and len(rep.report.regions) == 1
    wants = onnxruntime_outputs(model, {"x": SPECIAL})
    for got, want in zip(found, wants.values(), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "uint8"])
def test_turned_bits(dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("BitwiseNot", ["x"], ["y"])
    value = helper.make_tensor_value_info("x", kind, [5])
    result = helper.make_tensor_value_info("y", kind, [5])
    graph = helper.make_graph([node], "bits", [value], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    x = np.array([0, 1, 5, 127, np.iinfo(dtype).max], dtype)
    rep = backend.prepare(model, min_bytes=0)
    (found,) = rep.run([x])
    assert rep.report.left == () and len(rep.report.regions) == 1
    np.testing.assert_array_equal(found, ~x)
