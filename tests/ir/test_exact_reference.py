"""ONNX Runtime as a reference multiplies integers exactly, on CPUs without a unit for bytes too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from byoc.frontends.onnx.exact_reference import exact_session, without_saturation

ROWS, K, COLUMNS = 3, 64, 16
DRAW = np.random.default_rng(5)
X = DRAW.integers(200, 256, (ROWS, K)).astype(np.uint8)
W = DRAW.integers(100, 128, (K, COLUMNS)).astype(np.int8)
SUMS = X.astype(np.int32) @ W.astype(np.int32)


def product(zeros: tuple[str, ...], dtype: int = TensorProto.UINT8) -> onnx.ModelProto:
    """MatMulInteger of the constants, whose pairs are beyond 16 bits."""
    node = helper.make_node("MatMulInteger", ["x", "w", *zeros], ["y"])
    given = {"w": W, "none": np.uint8(0), "seven": np.int8(7), "x_zero": np.int8(0)}
    stored = [
        numpy_helper.from_array(np.asarray(v), k) for k, v in given.items() if k in node.input
    ]
    x = helper.make_tensor_value_info("x", dtype, [ROWS, K])
    y = helper.make_tensor_value_info("y", TensorProto.INT32, [ROWS, COLUMNS])
    graph = helper.make_graph([node], "g", [x], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("zeros", [(), ("none",), ("none", "seven"), ("", "seven")])
def test_sums_do_not_saturate(zeros: tuple[str, ...]) -> None:
    model = product(zeros)
    kinds = {tensor.data_type for tensor in without_saturation(model).graph.initializer}
    assert TensorProto.UINT8 in kinds and model == product(zeros)
    (found,) = exact_session(model).run(None, {"x": X})
    zero = 7 if "seven" in zeros else 0
    assert np.array_equal(found, SUMS - zero * X.astype(np.int32).sum(1, keepdims=True))


def test_signed_data_keeps_its_weights() -> None:
    """ONNX Runtime has no product of int8 by uint8."""
    for model in (product((), TensorProto.INT8), product(("x_zero",), TensorProto.INT8)):
        assert without_saturation(model) is model


def test_a_file_with_external_data_is_read_where_it_lies(tmp_path: Path) -> None:
    model = product(("none",))
    onnx.save(
        model,
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="m.data",
        size_threshold=0,
    )
    assert exact_session(tmp_path / "m.onnx").run(None, {"x": X})[0].shape == SUMS.shape
