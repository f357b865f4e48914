"""Masks of boxes that a detector pastes into images, as exporters of PyTorch write it.

Each round of a loop enlarges a mask to the size of its box, cuts off what lies outside of the
image, and puts zeros around what is left.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import byoc
from tests.reference import assert_agrees, onnxruntime_outputs

#: The first and the last pixel of a box along an axis that lie in the image, and the box's extent.
ALONG = """
    {side}First = Gather<axis = 0>(box, {at})
    {side}Last = Gather<axis = 0>(box, {to})
    {side}Less = Sub({side}Last, {side}First)
    {side}Wide = Add({side}Less, one)
    {side}Least = Concat<axis = 0>({side}Wide, one)
    {side}Size = ReduceMax<keepdims = 0>({side}Least)
    {side}Size1 = Unsqueeze({side}Size, zero)
    {side}First1 = Unsqueeze({side}First, zero)
    {side}Last1 = Unsqueeze({side}Last, zero)
    {side}Begins = Concat<axis = 0>({side}First1, zero)
    {side}Begin = ReduceMax<keepdims = 0>({side}Begins)
    {side}Beyond = Add({side}Last1, one)
    {side}Ends = Concat<axis = 0>({side}Beyond, {side}Image1)
    {side}End = ReduceMin<keepdims = 0>({side}Ends)
    {side}From = Sub({side}Begin, {side}First)
    {side}To = Sub({side}End, {side}First)
    {side}From1 = Unsqueeze({side}From, zero)
    {side}To1 = Unsqueeze({side}To, zero)
    {side}Begin1 = Unsqueeze({side}Begin, zero)
    {side}Left = Sub({side}Image, {side}End)
    {side}Left1 = Unsqueeze({side}Left, zero)"""

#: One round: all masks so far, and one more.
BODY = f"""
    mask = Gather<axis = 0>(sharp, i)
    box = Gather<axis = 0>(corners, i)
    {ALONG.format(side="x", at="scalar0", to="scalar2")}
    {ALONG.format(side="y", at="scalar1", to="scalar3")}
    image4 = Unsqueeze(mask, zero)
    shape = Shape(image4)
    kept = Slice(shape, zero, two, zero)
    wanted = Concat<axis = 0>(kept, ySize1, xSize1)
    large4 = Resize<mode = "linear", coordinate_transformation_mode = "half_pixel">(
        image4, none, none, wanted)
    large = Squeeze(large4, both)
    rows = Slice(large, yFrom1, yTo1, zero, one)
    inside = Slice(rows, xFrom1, xTo1, one, one)
    wide = Shape(inside)
    width = Gather<axis = 0>(wide, scalar1)
    width1 = Unsqueeze(width, zero)
    aboveSize = Concat<axis = 0>(yBegin1, width1)
    above = ConstantOfShape(aboveSize)
    belowSize = Concat<axis = 0>(yLeft1, width1)
    below = ConstantOfShape(belowSize)
    tall = Concat<axis = 0>(above, inside, below)
    cut = Slice(tall, zero, yImage1, zero, one)
    high = Shape(cut)
    height = Gather<axis = 0>(high, scalar0)
    height1 = Unsqueeze(height, zero)
    beforeSize = Concat<axis = 0>(height1, xBegin1)
    before = ConstantOfShape(beforeSize)
    behindSize = Concat<axis = 0>(height1, xLeft1)
    behind = ConstantOfShape(behindSize)
    whole = Concat<axis = 1>(before, cut, behind)
    fits = Slice(whole, zero, xImage1, one, one)
    one3 = Unsqueeze(fits, zero)
    more = Concat<axis = 0>(all, one3)
    still = Identity(yes)"""

MODEL = f"""<ir_version: 8, opset_import: ["": 17]>
    pasting (float[3, IMAGE] image, float[n, 4, 6, 6] masks, float[n, 4] boxes, float[n] scores)
        => (float[k, c, d] pasted)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[2] both = {{0, 1}},
     int64 scalar0 = {{0}}, int64 scalar1 = {{1}}, int64 scalar2 = {{2}}, int64 scalar3 = {{3}},
     float half = {{0.5}}, bool yes = {{1}}> {{
        likely = Greater(scores, half)
        places = NonZero(likely)
        at = Squeeze(places, zero)
        masksAt = Gather<axis = 0>(masks, at)
        boxesAt = Gather<axis = 0>(boxes, at)
        soft = Conv<pads = [1, 1, 1, 1]>(masksAt, weight)
        sharp = Sigmoid(soft)
        corners = Cast<to = 7>(boxesAt)
        sizes = Shape(image)
        yImage = Gather<axis = 0>(sizes, scalar1)
        xImage = Gather<axis = 0>(sizes, scalar2)
        yImage1 = Unsqueeze(yImage, zero)
        xImage1 = Unsqueeze(xImage, zero)
        noneSize = Concat<axis = 0>(zero, yImage1, xImage1)
        nothing = ConstantOfShape(noneSize)
        found = Shape(sharp)
        limit = Gather<axis = 0>(found, scalar0)
        pasted = Loop<body = paste
            (int64 i, bool go, float[a, b, e] all) => (bool still, float[f, g, h] more)
            {{ {BODY} }}>(limit, yes, nothing)
    }}"""


def pasting(image: str) -> onnx.ModelProto:
    """Masks of any number of boxes, computed from 4 channels, in images of these extents."""
    model = parser.parse_model(MODEL.replace("IMAGE", image))
    (loop,) = (node for node in model.graph.node if node.op_type == "Loop")
    (body,) = (a.g for a in loop.attribute if a.name == "body")
    for node in body.node:
        node.input[:] = ["" if name == "none" else name for name in node.input]
    weight = np.random.default_rng(0).standard_normal((1, 4, 3, 3)).astype("f4")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("image", ["20, 30", "height, width"])
def test_masks_are_pasted_where_their_boxes_are(tmp_path: Path, image: str) -> None:
    """Boxes inside of the image, over each of its sides, of a pixel, and turned round."""
    model, draw = pasting(image), np.random.default_rng(1)
    with pytest.warns(byoc.AxesNote):
        done = byoc.compile(model, tmp_path / "model.so")
    assert done.report.offloaded_macs == done.report.macs > 0
    net = byoc.load(tmp_path / "model.so")
    boxes = [[3, 4, 17, 12], [-5, -3, 8, 40], [15, 10, 40, 19], [7, 7, 7, 7], [9, 5, 8, 4]]
    for height, width in ((20, 30), (20, 30) if image[0].isdigit() else (35, 21)):
        for count in (len(boxes), 1, 0):
            given = {
                "image": np.zeros((3, height, width), "f4"),
                "masks": draw.standard_normal((len(boxes), 4, 6, 6)).astype("f4"),
                "boxes": np.array(boxes, "f4"),
                "scores": (np.arange(len(boxes)) < count).astype("f4"),
            }
            wanted = onnxruntime_outputs(model, given)
            assert wanted["pasted"].shape == (count, height, width)
            assert_agrees(net.run(given), wanted)


CUT = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 9] x, int64[1] begin, int64[1] end, float[5, 8] other) => (float[k, 8] y)
    <int64[1] axis = {0}, float[9, 8] weight = {WEIGHT}> {
        part = Slice(x, begin, end, axis)
        product = MatMul(part, weight)
        y = Concat<axis = 0>(product, other)
    }"""


def test_rows_between_computed_bounds_are_multiplied(tmp_path: Path) -> None:
    """From either end, of none, and beyond the extent."""
    draw = np.random.default_rng(2)
    weight = ", ".join(str(v) for v in draw.standard_normal(72).round(3))
    model = parser.parse_model(CUT.replace("WEIGHT", weight))
    with pytest.warns(byoc.AxesNote):
        done = byoc.compile(model, tmp_path / "model.so")
    assert done.report.offloaded_macs == done.report.macs > 0
    net = byoc.load(tmp_path / "model.so")
    for begin, end in ((2, 5), (-3, 99), (-99, -4), (4, 4), (6, 3), (0, 7), (50, 60)):
        given = {
            "x": draw.standard_normal((7, 9)).astype("f4"),
            "begin": np.array([begin]),
            "end": np.array([end]),
            "other": draw.standard_normal((5, 8)).astype("f4"),
        }
        assert_agrees(net.run(given), onnxruntime_outputs(model, given))
