"""Lengths that a file divides itself, where the dividend may be below 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import parser

import byoc
from tests.reference import onnxruntime_outputs


def _model(nodes: str, rank: int) -> onnx.ModelProto:
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[1, 4, n] x) => (float[{", ".join("abcd"[:rank])}] y)
        <int64 last = {{2}}, int64 five = {{5}}, int64 two = {{2}}, int64 one = {{1}},
         int64[1] zeroth = {{0}}, int64[1] four = {{4}}, int64[1] open = {{-1}}>
        {{
          shape = Shape(x)
          n = Gather(shape, last)
          room = Sub(n, five)
          whole = Div(room, two)
          steps = Add(whole, one)
          {nodes}
        }}"""
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def _check(model: onnx.ModelProto, path: Path, *lengths: int) -> None:
    library = byoc.load(path)
    for n in lengths:
        x = np.random.default_rng(n).standard_normal((1, 4, n), np.float32)
        want = onnxruntime_outputs(model, {"x": x})["y"]
        np.testing.assert_allclose(library.run({"x": x})["y"], want, 1e-6, 1e-6)


def test_a_length_that_a_reshape_needs_is_not_below_0(tmp_path: Path) -> None:
    """The steps of a window, as PyTorch writes them: no size was found but a fixed one."""
    model = _model(
        """pooled = AveragePool<kernel_shape = [5], strides = [2]>(x)
           columns = Unsqueeze(steps, zeroth) shape2 = Concat<axis = 0>(four, columns)
           rows = Reshape(pooled, shape2) y = Softmax<axis = 0>(rows)""",
        2,
    )
    made = byoc.compile(model, tmp_path / "m.so")
    assert made.report.left == () and len(made.report.regions) == 1
    _check(model, made.path, 5, 6, 31)


def test_a_length_that_only_numbers_need_takes_every_size(tmp_path: Path) -> None:
    model = _model("number = Cast<to = 1>(steps) y = Mul(x, number)", 3)
    _check(model, byoc.compile(model, tmp_path / "m.so").path, 1, 4, 5, 31)
