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


def _rotated_by_repeated_angles() -> onnx.ModelProto:
    """Angles of ``x`` [batch, length], each twice, as PyTorch writes ``repeat_interleave``.

    The count of angles is read from a product whose shape ONNX's inference does not know.
    """
    node = helper.make_node
    twice = numpy_helper.from_array(np.array([2], np.int64), "twice")
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"], axis=0),
        node("Concat", ["batch", "one", "one"], ["times"], axis=0),
        node("Tile", ["rates", "times"], ["rates_of_all"]),
        node("Unsqueeze", ["x", "one"], ["steps"]),
        node("MatMul", ["rates_of_all", "steps"], ["angles"]),
        node("Shape", ["angles"], ["of_angles"]),
        node("Gather", ["of_angles", "one"], ["count"], axis=0),
        node("ConstantOfShape", ["count"], ["counts"], value=twice),
        node("ReduceMax", ["counts"], ["most"], keepdims=0),
        node("Transpose", ["angles"], ["lines"], perm=[1, 2, 0]),
        node("Unsqueeze", ["lines", "one"], ["a"]),
        node("Shape", ["lines"], ["of_lines"]),
        node("Slice", ["of_lines", "one", "three"], ["rest"]),
        node("Unsqueeze", ["most", "zero"], ["copies"]),
        node("Concat", ["count", "copies", "rest"], ["wide"], axis=0),
        node("Expand", ["a", "wide"], ["all"]),
        node("Range", ["from", "most", "step"], ["numbers"]),
        node("Unsqueeze", ["counts", "one"], ["column"]),
        node("Less", ["numbers", "column"], ["kept"]),
        node("NonZero", ["kept"], ["places"]),
        node("Transpose", ["places"], ["at"], perm=[1, 0]),
        node("GatherND", ["all", "at"], ["repeated"]),
        node("Transpose", ["repeated"], ["of_steps"], perm=[2, 1, 0]),
        node("Sin", ["of_steps"], ["y"]),
    ]
    rates = np.linspace(0.1, 1.0, 4, dtype=np.float32).reshape(1, 4, 1)
    given = {"zero": [0], "one": [1], "three": [3], "from": 0, "step": 1}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", 8])],
        [numpy_helper.from_array(rates, "rates")]
        + [numpy_helper.from_array(np.array(n, np.int64), name) for name, n in given.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_numbers_are_repeated_beside_open_axes(tmp_path: Path) -> None:
    model = _rotated_by_repeated_angles()
    report = byoc.compile(model, tmp_path / "model.so", min_bytes=0).report
    assert len(report.regions) == 1 and not report.left, report.summary()
    compiled = byoc.load(tmp_path / "model.so")
    for shape in ((1, 1), (2, 5), (3, 9)):
        x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        expected = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_allclose(compiled.run({"x": x})["y"], expected, atol=1e-5)
