"""Ranges as exporters wrote them before ONNX had Range: the places of all ones of a vector."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import byoc
from tests.reference import onnxruntime_outputs


def _first_of_rows(filling: float) -> onnx.ModelProto:
    """The first element of each row of ``x`` [batch, 6], taken from one long line."""
    node = helper.make_node
    filled = numpy_helper.from_array(np.array([filling], np.float32), "filled")
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"], axis=0),
        node("Unsqueeze", ["batch"], ["one_number"], axes=[0]),
        node("ConstantOfShape", ["one_number"], ["ones"], value=filled),
        node("NonZero", ["ones"], ["places"]),
        node("Transpose", ["places"], ["column"], perm=[1, 0]),
        node("Squeeze", ["column"], ["rows"], axes=[1]),
        node("Mul", ["rows", "six"], ["at"]),
        node("Exp", ["x"], ["a"]),
        node("Reshape", ["a", "line"], ["flat"]),
        node("Gather", ["flat", "at"], ["first"], axis=0),
        node("Sigmoid", ["first"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["count"])],
        [
            numpy_helper.from_array(np.array(numbers, np.int64), name)
            for name, numbers in (("zero", 0), ("six", 6), ("line", [-1]))
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=6)


@pytest.mark.parametrize("filling", [1.0, -2.0])
def test_all_places_are_a_range(filling: float, tmp_path: Path) -> None:
    model = _first_of_rows(filling)
    report = byoc.compile(model, tmp_path / "model.so", min_bytes=0).report
    assert len(report.regions) == 1 and not report.left, report.summary()
    library = byoc.load(tmp_path / "model.so")
    assert list(library.inputs[0].shape) == ["batch", 6]
    for batch in (1, 3, 8):
        x = {"x": np.random.default_rng(0).standard_normal((batch, 6)).astype(np.float32)}
        want = onnxruntime_outputs(model, x)["y"]
        np.testing.assert_allclose(library.run(x)["y"], want, rtol=1e-5, strict=True)


def test_zeros_have_no_places(tmp_path: Path) -> None:
    model = _first_of_rows(0.0)
    byoc.compile(model, tmp_path / "model.so", min_bytes=0)
    x = {"x": np.zeros((3, 6), np.float32)}
    got = byoc.load(tmp_path / "model.so").run(x)["y"]
    assert got.shape == onnxruntime_outputs(model, x)["y"].shape == (0,)
