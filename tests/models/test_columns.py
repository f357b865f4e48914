"""Convolutions of images one pixel wide, as converters write those of lines, go along rows."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import byoc
from byoc.accuracy import relative_error
from tests.reference import onnxruntime_outputs

#: Channels, outputs, groups, kernel, strides, pads, dilation along the column.
CASES = [
    (8, 24, 1, 5, 1, (0, 0), 1),
    (8, 24, 1, 3, 2, (1, 1), 1),
    (6, 16, 1, 4, 3, (2, 0), 2),
    (16, 16, 16, 3, 1, (1, 1), 1),
    (16, 16, 4, 3, 2, (1, 0), 1),
    (64, 64, 2, 3, 1, (1, 1), 1),
]


def _model(case: tuple, height: int | str, transposed: bool = False) -> onnx.ModelProto:
    channels, outputs, groups, kernel, stride, pads, dilation = case
    shape = (channels, outputs // groups) if transposed else (outputs, channels // groups)
    weight = np.random.default_rng(0).standard_normal((*shape, kernel, 1)).astype("float32")
    node = helper.make_node(
        "ConvTranspose" if transposed else "Conv",
        ["x", "w"],
        ["y"],
        group=groups,
        strides=[stride, 1],
        dilations=[dilation, 1],
        pads=[pads[0], 0, pads[1], 0],
    )
    x = helper.make_tensor_value_info("x", 1, [2, channels, height, 1])
    y = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(weight, "w")])
    opset = [helper.make_opsetid("", 17)]
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opset, ir_version=8)
    )


def _check(
    model: onnx.ModelProto, folder: Path, height: int, tolerance: float, precision: str = "fp32"
) -> str:
    """Compare with ONNX Runtime, and give the C."""
    library, code = folder / "model.so", folder / "code"
    compiled = byoc.compile(model, library, dump_code=code, min_bytes=0, precision=precision)
    assert compiled.report.left == ()
    channels = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    x = np.random.default_rng(1).standard_normal((2, channels, height, 1)).astype("float32")
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    assert relative_error(list(byoc.load(library).run({"x": x}).values()), expected) <= tolerance
    return "".join(path.read_text() for path in code.rglob("*.c"))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-6), ("bf16", 2e-2)])
def test_a_column_is_computed_as_a_row(
    tmp_path: Path, case: tuple, precision: str, tolerance: float
) -> None:
    code = _check(_model(case, 37), tmp_path, 37, tolerance, precision)
    assert re.search(r"\.in_h = 1,\s.*\.in_w = 37", code, re.DOTALL)


def test_a_column_of_any_height(tmp_path: Path) -> None:
    code = _check(_model(CASES[0], "h"), tmp_path, 21, 1e-6)
    assert ".in_h = 1," in code


def test_a_transposed_convolution_of_a_column(tmp_path: Path) -> None:
    code = _check(_model((8, 24, 1, 4, 2, (1, 1), 1), 19, transposed=True), tmp_path, 19, 1e-6)
    assert ".in_h = 1," in code


def test_a_quantised_column(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    constants = {
        "scale": np.float32(0.02),
        "zero": np.uint8(128),
        "w": rng.integers(-127, 128, (24, 8, 5, 1)).astype("int8"),
        "w_scale": np.float32(0.01),
        "w_zero": np.int8(0),
        "y_scale": np.float32(0.3),
    }
    names = ["x", "scale", "zero", "w", "w_scale", "w_zero", "y_scale", "zero"]
    node = helper.make_node("QLinearConv", names, ["y"], pads=[2, 0, 1, 0], strides=[2, 1])
    x = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [2, 8, 33, 1])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, [2, 24, 16, 1])
    stored = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    graph = helper.make_graph([node], "g", [x], [y], stored)
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    library, code = tmp_path / "model.so", tmp_path / "code"
    assert byoc.compile(model, library, dump_code=code, min_bytes=0).report.left == ()
    given = {"x": rng.integers(0, 256, (2, 8, 33, 1)).astype("uint8")}
    expected = onnxruntime_outputs(model, given)["y"]
    ours = byoc.load(library).run(given)["y"].astype(int)
    assert np.abs(ours - expected).max() <= 1
    assert "ext_qconv2d" in (text := "".join(p.read_text() for p in code.rglob("*.c")))
    assert ".in_h = 1," in text
