"""Networks whose data are quantised to 16 bits: computed in floats that are rounded alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import byoc
from tests.reference import onnxruntime_outputs

SCALE = 2.0**-4


def qdq(name: str, scale: str = "s") -> list[onnx.NodeProto]:
    return [
        helper.make_node("QuantizeLinear", [name, scale, "z"], [f"{name}_q"]),
        helper.make_node("DequantizeLinear", [f"{name}_q", scale, "z"], [f"{name}_d"]),
    ]


def network(dtype: str, zero: int) -> onnx.ModelProto:
    """Numbers rounded once, moved and rounded again, and rounded to larger steps."""
    nodes = [
        *qdq("x"),
        helper.make_node("Reshape", ["x_d", "shape"], ["rows"]),
        *qdq("rows"),
        helper.make_node("MatMul", ["rows_d", "w"], ["y"]),
        *qdq("y", "t"),
        helper.make_node("Concat", ["x_d", "x_d"], ["two"], axis=1),
        *qdq("two"),
    ]
    weights = {
        "s": np.array(SCALE, np.float32),
        "t": np.array(3 * SCALE, np.float32),
        "z": np.array(zero, dtype),
        "w": np.diag(np.array([1, -2, 4], np.float32)),
        "shape": np.array([-1, 3]),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6])],
        [helper.make_empty_tensor_value_info(name) for name in ("y_d", "two_d")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(("dtype", "zero"), [("uint16", 0), ("uint16", 32768), ("int16", 7)])
def test_pairs_are_rounded_in_a_region(dtype: str, zero: int, tmp_path: Path) -> None:
    model = network(dtype, zero)
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert not report.left
    assert len(report.regions) == 1
    # Halves between two steps, numbers beyond the ends, and infinities.
    x = np.array([0.5, 1.5, -0.5, 2.5, 3.25, 70000, -70000, 1e30, np.inf, -np.inf, 0, -3.5])
    x = (x.reshape(2, 6) * SCALE).astype(np.float32)
    expected = onnxruntime_outputs(model, {"x": x})
    got = byoc.load(tmp_path / "m.so").run({"x": x})
    np.testing.assert_array_equal(got["two_d"], expected["two_d"])
    np.testing.assert_allclose(got["y_d"], expected["y_d"], rtol=1e-6, atol=1e-6)


def test_integers_that_others_read_stay(tmp_path: Path) -> None:
    model = network("uint16", 100)
    model.graph.output.append(helper.make_empty_tensor_value_info("y_q"))
    byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    x = np.linspace(-9, 9, 12, dtype=np.float32).reshape(2, 6)
    expected = onnxruntime_outputs(model, {"x": x})
    got = byoc.load(tmp_path / "m.so").run({"x": x})
    np.testing.assert_array_equal(got["y_q"], expected["y_q"])


@pytest.mark.parametrize("least", [np.finfo(np.float32).min, -1e37])
def test_masks_of_the_least_number(least: float, tmp_path: Path) -> None:
    """Scales so large that the greatest integers stand for infinity."""
    least = np.float32(least)
    nodes = [
        helper.make_node("Where", ["c", "zeros", "least"], ["m"]),
        *qdq("m"),
        helper.make_node("Add", ["x", "m_d"], ["a"]),
        *qdq("a"),
        helper.make_node("Softmax", ["a_d"], ["y"]),
    ]
    weights = {
        "zeros": np.zeros(6, np.float32),
        "least": np.array(least),
        "s": np.array(-least / np.float32(65535)),
        "z": np.array(65535 if least < -1e38 else 30000, "uint16"),
    }
    inputs = {
        "c": helper.make_tensor_value_info("c", TensorProto.BOOL, ["n", 6]),
        "x": helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6]),
    }
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("y", "a_d")]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", list(inputs.values()), outputs, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert not report.left and len(report.regions) == 1
    draw = np.random.default_rng(0)
    x = draw.standard_normal((5, 6)).astype(np.float32)
    x[0, :2] = 1e38, -np.inf
    given = {"c": draw.random((5, 6)) < 0.5, "x": x}
    expected, got = onnxruntime_outputs(model, given), byoc.load(tmp_path / "m.so").run(given)
    np.testing.assert_array_equal(got["a_d"], expected["a_d"])
    np.testing.assert_allclose(got["y"], expected["y"], rtol=1e-6, atol=1e-6)
