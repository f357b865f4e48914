"""Pads by widths that the sizes of a call decide, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import byoc
from byoc.errors import RunError
from tests.reference import assert_agrees, onnxruntime_outputs

#: Both sides are padded behind to a whole number of windows, as restorers of images do.
TO_WINDOWS = """
    g (float[n,h,w] x) => (float[n,a,b] y) <int64[2] sides = {4, 4}, int64[1] four = {4},
        int64[4] none = {0, 0, 0, 0}, int64[1] keep = {0}, int64[2] inner = {2, 4}>
    {
        one = Relu(x)
        sizes = Shape<start = 1>(x)
        over = Mod(sizes, sides)
        rest = Sub(sides, over)
        more = Mod(rest, sides)
        widths = Concat<axis = 0>(none, more)
        padded = Pad<mode = "MODE">(one, widths)
        high = Shape<start = 1, end = 2>(padded)
        wide = Shape<start = 2, end = 3>(padded)
        rows = Div(high, four)
        columns = Div(wide, four)
        shape = Concat<axis = 0>(keep, rows, four, columns, four)
        windows = Reshape(padded, shape)
        y = ReduceSum<keepdims = 0>(windows, inner)
    }"""

#: An axis is padded to a length, before it and behind it; a longer one is cut.
TO_A_LENGTH = """
    g (float[n,3] x) => (float[9,3] y, int64[9,3] z) <int64[1] nine = {9}, int64[1] two = {2},
        int64[1] none = {0}>
    {
        size = Shape<start = 0, end = 1>(x)
        more = Sub(nine, size)
        before = Div(more, two)
        behind = Sub(more, before)
        widths = Concat<axis = 0>(before, none, behind, none)
        one = Neg(x)
        y = Pad<mode = "MODE">(one, widths)
        whole = Cast<to = 7>(x)
        z = Pad<mode = "MODE">(whole, widths)
    }"""


def model_of(text: str, mode: str) -> onnx.ModelProto:
    head = '<ir_version: 9, opset_import: ["" : 19]>'
    return parser.parse_model(head + text.replace("MODE", mode))


def compiled(model: onnx.ModelProto, tmp_path: Path) -> Path:
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1
    assert made.report.left == ()
    return tmp_path / "m.so"


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).uniform(-9, 9, shape).astype(np.float32)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_images_of_any_size_in_whole_windows(mode: str, tmp_path: Path) -> None:
    model = model_of(TO_WINDOWS, mode)
    with byoc.load(compiled(model, tmp_path)) as library:
        for shape in ((2, 7, 8), (1, 4, 5), (3, 10, 15)):
            inputs = {"x": drawn(*shape)}
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_any_number_of_rows_to_a_length(mode: str, tmp_path: Path) -> None:
    model = model_of(TO_A_LENGTH, mode)
    with byoc.load(compiled(model, tmp_path)) as library:
        for rows in (5, 6, 8, 9, 11):
            inputs = {"x": drawn(rows, 3)}
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))
        with pytest.raises(RunError, match="an index lies outside"):  # ONNX Runtime refuses it, too
            library.run({"x": drawn(1 if mode == "reflect" else 0, 3)})


def test_windows_beside_as_many_masks(tmp_path: Path) -> None:
    """ONNX counts windows as ``(n + 7) // 8`` in one place, and rounds n up to 8 in the other."""
    model = parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17]> g (float[n,2] x) => (float[a,b,c] y)
        <int64 zero = {0}, int64 one = {1}, int64 eight = {8}, int64[1] first = {0},
         int64[3] none = {0, 0, 0}, int64[3] shape = {-1, 8, 2}, int64[2] last = {1, 2}>
        {
            sizes = Shape(x)
            n = Gather(sizes, zero)
            over = Mod(n, eight)
            rest = Sub(eight, over)
            more = Mod(rest, eight)
            behind = Unsqueeze(more, first)
            nothing = ConstantOfShape<value = int64[1] {0}>(one_axis)
            widths = Concat<axis = 0>(nothing, nothing, behind, nothing)
            padded = Pad(x, widths)
            windows = Reshape(padded, shape)
            whole = Add(n, more)
            count = Div(whole, eight)
            places = Range(zero, count, one)
            odd = Mod(places, two)
            mask = Cast<to = 9>(odd)
            wide = Unsqueeze(mask, last)
            y = Where(wide, minus, windows)
        }"""
    )
    for name, array in (
        ("one_axis", np.array([1])),
        ("two", np.array(2)),
        ("minus", np.array(-1, np.float32)),
    ):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    with byoc.load(compiled(model, tmp_path)) as library:
        for rows in (21, 8, 1):
            inputs = {"x": drawn(rows, 2)}
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))
