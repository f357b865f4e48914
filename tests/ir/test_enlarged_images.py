"""Functions of the pixels of images that are enlarged by whole numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from tvm.relax import op

import byoc
from byoc.canonicalise.resize_to_broadcast import pixels_before_enlarging
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import constant, random
from .rule_check import check

SPECIAL = np.array([[np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-38, -3.0, 7.0]], "float32")


def _enlarged(emit, x, down=2, across=2):
    batch, channels, height, width = map(int, x.ty.shape.values)
    spread = emit(op.reshape(x, (batch, channels, height, 1, width, 1)))
    wide = emit(op.broadcast_to(spread, (batch, channels, height, down, width, across)))
    return emit(op.reshape(wide, (batch, channels, height * down, width * across)))


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("relax.nn.relu", op.nn.relu),
        ("relax.clip", lambda x: op.clip(x, 0, 6)),
        ("relax.multiply", lambda x: op.multiply(constant(random(1, 2, 1, 1)), x)),
        ("relax.subtract", lambda x: op.subtract(x, constant(2.0))),
    ],
)
def test_pixels_are_computed_before_they_are_repeated(name: str, function) -> None:
    def build(emit, x):
        return emit(function(_enlarged(emit, x)))

    expected = [name, "relax.reshape", "relax.broadcast_to", "relax.reshape"]
    for x in (random(1, 2, 3, 4), np.resize(SPECIAL, (1, 2, 2, 4))):
        check(build, pixels_before_enlarging, expected, x)


def test_pixels_that_differ_are_computed_where_they_are() -> None:
    def by_place(emit, x):
        return emit(op.add(_enlarged(emit, x), constant(random(1, 1, 6, 8))))

    def read_twice(emit, x):
        large = _enlarged(emit, x)
        return emit(op.multiply(emit(op.sigmoid(large)), large))

    steps = ["relax.reshape", "relax.broadcast_to", "relax.reshape"]
    check(by_place, pixels_before_enlarging, [*steps, "relax.add"], random(1, 2, 3, 4))
    expected = [*steps, "relax.sigmoid", "relax.multiply"]
    check(read_twice, pixels_before_enlarging, expected, random(1, 2, 3, 4))


MODEL = """<ir_version: 8, opset_import: ["": 18]>
g (float[n,8,h,w] x) => (float[n,8,h2,w2] y)
<float[4] scales = {1.0, 1.0, 2.0, 3.0}, float[8,1,1] b = {1, -2, 3, -4, 5, -6, 7, -8}>
{
  large = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",
                 nearest_mode = "floor">(x, , scales)
  moved = Add(large, b)
  y = Sigmoid(moved)
}"""


def test_an_image_of_any_size(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(MODEL)
    with pytest.warns(byoc.AxesNote):
        report = byoc.compile(model, tmp_path / "large.so").report
    assert report.left == () and len(report.regions) == 1
    loaded = byoc.load(tmp_path / "large.so")
    for shape in ((1, 8, 1, 1), (2, 8, 5, 7), (1, 8, 16, 16)):
        given = {"x": random(*shape)}
        assert_agrees(dict(loaded.run(given)), onnxruntime_outputs(model, given))
