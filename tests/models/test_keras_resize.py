"""Resize as tf2onnx writes Keras's nearest neighbours: a transformation of opset 11 alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, parser

import byoc
from tests.reference import assert_agrees, onnxruntime_outputs


def _model(opset: int, mode: str, rounding: str, shape: str) -> ModelProto:
    """To 5 x 11 pixels."""
    return parser.parse_model(f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[{shape}] x) => (float[n, 3, p, q] y)
        <float[0] none = {{}}, int64[2] z = {{5, 11}}, int64[1] a = {{0}}, int64[1] c = {{2}}> {{
          d = Shape(x)
          e = Slice(d, a, c)
          sizes = Concat<axis = 0>(e, z)
          y = Resize<mode = "{mode}", nearest_mode = "{rounding}",
            coordinate_transformation_mode = "tf_half_pixel_for_nn">(x, none, none, sizes)
        }}""")


@pytest.mark.parametrize("opset", [11, 15])
@pytest.mark.parametrize("rounding", ["floor", "round_prefer_floor", "ceil"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_fixed_sizes(opset: int, mode: str, rounding: str, tmp_path: Path) -> None:
    """The height stays in the second one, and nothing is added there."""
    for shape in ((2, 3, 7, 8), (1, 3, 5, 3)):
        model = _model(opset, mode, rounding, ", ".join(map(str, shape)))
        made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
        assert len(made.report.regions) == 1 and not made.report.left
        inputs = {"x": np.random.default_rng(0).standard_normal(shape, np.float32)}
        with byoc.load(made.path) as library:
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_open_sizes(mode: str, tmp_path: Path) -> None:
    """Linear ones get sizes: whether half a pixel is added depends on whether an axis stays."""
    model = _model(13, mode, "floor", "n, 3, h, w")
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    height = made.metadata.inputs[0].shape[2]
    assert isinstance(height, int) == (mode == "linear")
    shapes = [(1, 3, 224, 224)] if mode == "linear" else [(2, 3, 7, 8), (1, 3, 5, 3)]
    with byoc.load(made.path) as library:
        for shape in shapes:
            inputs = {"x": np.random.default_rng(0).standard_normal(shape, np.float32)}
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


def test_sizes_of_one_image_fix_an_open_batch(tmp_path: Path) -> None:
    """Of two images nearest would take the first one, as ONNX Runtime does."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 13]>
        g (float[n, 3, 7, 8] x) => (float[m, 3, 5, 11] y) <int64[4] sizes = {1, 3, 5, 11}> {
          y = Resize<mode = "nearest">(x, , , sizes)
        }""")
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert made.metadata.inputs[0].shape == (1, 3, 7, 8) and not made.report.left
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 3, 7, 8), np.float32)}
    with byoc.load(made.path) as library:
        assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))
    with pytest.raises(byoc.ByocError, match=r"axis 0 of n becomes 1, of whole images"):
        byoc.compile(model, tmp_path / "n.so", {"x": ["n", 3, 7, 8]})
