"""Images of any size that a network scales by a ratio in fp32, as detectors do before all else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from tvm import relax

import byoc
from byoc.frontends.onnx import import_model
from byoc.ir.dataflow import op_name, shape_of
from tests.reference import assert_agrees, onnxruntime_outputs

#: Until its shorter side has 40 pixels, or its longer one 70, as PyTorch's exporter writes it.
SCALE = """
    shape = Shape(image)
    sides = Slice(shape, one, three)
    shorter = ReduceMin<keepdims = 0>(sides)
    longer = ReduceMax<keepdims = 0>(sides)
    shorterF = Cast<to = 1>(shorter)
    longerF = Cast<to = 1>(longer)
    perPixel = Reciprocal(shorterF)
    perPixel2 = Reciprocal(longerF)
    up = Mul(perPixel, least)
    down = Mul(perPixel2, most)
    ratio = Min(up, down)
    sidesF = Cast<to = 1>(sides)
    exact = Mul(sidesF, ratio)
    floors = Floor(exact)
    whole = Cast<to = 7>(floors)
    images = Unsqueeze(image, zero)
    all = Shape(images)
    kept = Slice(all, zero, two)
    sizes = Concat<axis = 0>(kept, whole)
    resized = Resize<mode = "linear", coordinate_transformation_mode = "half_pixel">(
        images, none, none, sizes)"""

#: To multiples of 8 pixels.
PAD = """
    found = Shape(resized)
    foundSides = Slice(found, two, four)
    foundF = Cast<to = 1>(foundSides)
    eighths = Div(foundF, eight)
    ceiled = Ceil(eighths)
    multiples = Mul(ceiled, eight)
    wide = Cast<to = 7>(multiples)
    more = Sub(wide, foundSides)
    pads = Concat<axis = 0>(noPads, more)
    padded = Pad(resized, pads)"""

#: Two levels, of which the smaller one is enlarged to the other's size.
LEVELS = """
    half = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(padded, first)
    quarter = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(half, second)
    small = Shape(quarter)
    large = Shape(half)
    same = Slice(small, zero, two)
    other = Slice(large, two, four)
    enlarged = Concat<axis = 0>(same, other)
    back = Resize<mode = "nearest", nearest_mode = "floor",
        coordinate_transformation_mode = "asymmetric">(quarter, none, none, enlarged)
    y = Add(half, back)"""

MODEL = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[3, h, w] image) => (float[1, 4, a, b] y)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] three = {{3}},
     int64[1] four = {{4}}, float eight = {{8}}, float least = {{40}}, float most = {{70}},
     int64[6] noPads = {{0, 0, 0, 0, 0, 0}}> {{ {SCALE} {PAD} {LEVELS} }}"""


def test_images_of_every_size_are_scaled_as_the_file_says(tmp_path: Path) -> None:
    """The sizes are computed at the run: 40 * (1 / 41) * 41 is no 40 in fp32."""
    model, draw = parser.parse_model(MODEL), np.random.default_rng(0)
    for node in model.graph.node:
        node.input[:] = ["" if name == "none" else name for name in node.input]
    for name, channels in (("first", 3), ("second", 4)):
        weight = draw.standard_normal((4, channels, 3, 3)).astype("f4")
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    with pytest.warns(byoc.AxesNote, match=r"image:\[3,h,w\]"):
        imported = import_model(model)
    shapes = []

    def note(expr: relax.Expr) -> None:
        if op_name(expr) == "relax.nn.conv2d":
            shapes.append([str(extent) for extent in shape_of(expr)[1:]])

    relax.analysis.post_order_visit(imported.module["main"].body, note)
    assert [shape[0] for shape in shapes] == ["4", "4"]
    assert all(text.startswith("4*rounded_") for text in shapes[0][1:])
    with pytest.warns(byoc.AxesNote):
        done = byoc.compile(model, tmp_path / "model.so")
    assert done.report.offloaded_macs == done.report.macs > 0
    net = byoc.load(tmp_path / "model.so")
    for height, width in ((41, 41), (41, 47), (55, 20), (100, 333), (3, 4)):
        given = {"image": draw.random((3, height, width), "f4")}
        assert_agrees(net.run(given), onnxruntime_outputs(model, given))
