"""Results that are sized by values: their extents are symbols, which what comes after follows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import byoc
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model, random

_INTS = {name: np.array(values, np.int64) for name, values in {"zero": [0], "one": [1]}.items()}


def _flow() -> onnx.ModelProto:
    """Positive elements are taken out, scaled by their number, and put back, as in flows of VITS.

    The rest is taken out as well, so that two sizes have the same origin.
    """
    nodes = [
        helper.make_node("Greater", ["x", "least"], ["mask"]),
        helper.make_node("Not", ["mask"], ["others"]),
        helper.make_node("NonZero", ["mask"], ["first"]),
        helper.make_node("NonZero", ["others"], ["second"]),
        helper.make_node("Transpose", ["first"], ["at"]),
        helper.make_node("Transpose", ["second"], ["at_others"]),
        helper.make_node("GatherND", ["x", "at"], ["taken"]),
        helper.make_node("GatherND", ["x", "at_others"], ["left"]),
        helper.make_node("Shape", ["taken"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["count"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["taken", "count"], ["scaled"]),
        helper.make_node("Slice", ["scaled", "zero", "shape", "zero"], ["updates"]),
        helper.make_node("ScatterND", ["x", "at", "updates"], ["y"]),
        helper.make_node("Exp", ["left"], ["z"]),
    ]
    weights = {**_INTS, "least": np.float32([0])}
    return onnx_model(nodes, {"x": ["n", 7]}, ["y", "z"], weights)


@pytest.mark.slow
def test_elements_are_taken_out_and_put_back(tmp_path: Path) -> None:
    model = _flow()
    byoc.compile(model, tmp_path / "m.so", {"x": ["n", 7]})
    loaded = byoc.load(tmp_path / "m.so")
    for x in (random(5, 7), -np.abs(random(3, 7)), np.abs(random(1, 7))):
        assert_agrees(loaded.run({"x": x}), onnxruntime_outputs(model, {"x": x}))


@pytest.mark.slow
def test_updates_that_are_too_few_are_an_error(tmp_path: Path) -> None:
    model = _flow()
    next(n for n in model.graph.node if n.op_type == "ScatterND").input[2] = "fewer"
    cut = helper.make_node("Slice", ["scaled", "zero", "three", "zero"], ["fewer"])
    model.graph.node.insert(len(model.graph.node) - 2, cut)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([3]), "three"))
    byoc.compile(model, tmp_path / "m.so", {"x": ["n", 7]})
    loaded = byoc.load(tmp_path / "m.so")
    few = {"x": np.float32([[1, -1, 2, -2, 3, -3, -4]])}
    assert_agrees(loaded.run(few), onnxruntime_outputs(model, few))
    with pytest.raises(byoc.ByocError):
        loaded.run({"x": np.abs(random(1, 7))})


def test_a_table_is_padded_to_a_length_or_cut(tmp_path: Path) -> None:
    """Relative positions: a table of 9 entries gets 2 n - 1, by widths n - 5, some below 0."""
    ints = {"five": np.array(5, np.int64), "at": np.array(1, np.int64)}
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "at"], ["n"]),
        helper.make_node("Sub", ["n", "five"], ["more"]),
        helper.make_node("Unsqueeze", ["more", "zero"], ["width"]),
        helper.make_node("Concat", ["width", "zero", "width", "zero"], ["flat"], axis=0),
        helper.make_node("Reshape", ["flat", "pairs"], ["pairs_of_axes"]),
        helper.make_node("Transpose", ["pairs_of_axes"], ["turned"], perm=[0, 1]),
        helper.make_node("Reshape", ["turned", "all"], ["pads"]),
        helper.make_node("Pad", ["table", "pads"], ["padded"]),
        helper.make_node("Relu", ["padded"], ["y"]),
    ]
    shapes = {"pairs": np.array([2, 2], np.int64), "all": np.array([-1], np.int64)}
    weights = {**_INTS, **ints, **shapes, "table": random(9, 6)}
    model = onnx_model(nodes, {"x": [1, "n"]}, ["y"], weights)
    byoc.compile(model, tmp_path / "m.so", {"x": [1, "n+1"]})
    loaded = byoc.load(tmp_path / "m.so")
    for n in (1, 4, 5, 12):
        inputs = {"x": random(1, n)}
        assert_agrees(loaded.run(inputs), onnxruntime_outputs(model, inputs))


def _picked(result: str) -> onnx.ModelProto:
    """Rows of a table and their places, picked by one condition; what is left by its opposite."""
    text = f"""
    <ir_version: 8, opset_import: ["" : 13]>
    net (int64[n] ids, bool[n] c) => (float[] y)
    <int64 zero = {{0}}, int64 one = {{1}}, int64[1] last = {{1}},
     float[6, 2] table = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}>
    {{
      shape = Shape(ids)
      n = Squeeze(shape)
      places = Range(zero, n, one)
      picked = Compress<axis = 0>(ids, c)
      rows = Gather(table, picked)
      at = Compress<axis = 0>(places, c)
      column = Unsqueeze(at, last)
      others = Not(c)
      picked_others = Compress(ids, others)
      other_rows = Gather(table, picked_others)
      at_others = Compress<axis = -1>(places, others)
      {result}
    }}"""
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize(
    "result",
    [
        "numbers = Cast<to = 1>(column) y = Add(rows, numbers)",
        "shape_of_rows = Shape(rows) wide = Expand(column, shape_of_rows) y = Cast<to = 1>(wide)",
        """all_rows = Concat<axis = 0>(rows, other_rows)
        all_places = Concat<axis = 0>(at, at_others)
        columns = Unsqueeze(all_places, last)
        whole = Shape(all_rows)
        index = Expand(columns, whole)
        zeros = ConstantOfShape(whole)
        y = ScatterElements<axis = 0>(zeros, index, all_rows)""",
    ],
    ids=["added", "expanded", "stitched"],
)
def test_what_one_condition_picks_is_as_long(result: str, tmp_path: Path) -> None:
    """As TensorFlow partitions a batch and stitches it together again."""
    model = _picked(result)
    made = byoc.compile(model, tmp_path / "m.so", {"ids": ["n"], "c": ["n"]}, min_bytes=0)
    assert made.report.regions and {e.op for e in made.report.left} <= {"relax.nonzero"}
    loaded = byoc.load(tmp_path / "m.so")
    for n in (1, 5, 12):
        draw = np.random.default_rng(n)
        for chosen in (draw.random(n) > 0.4, np.zeros(n, bool), np.ones(n, bool)):
            feeds = {"ids": draw.integers(0, 6, n), "c": chosen}
            assert_agrees(loaded.run(feeds), onnxruntime_outputs(model, feeds))


def test_a_condition_beyond_the_axis_picks_nothing(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 13]> net (float[3, 5] x, bool[9] c) => (float[] y)'
    model = onnx.parser.parse_model(text + "{ r = Relu(x) y = Compress<axis = -1>(r, c) }")
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert made.report.regions
    feeds = {"x": random(3, 5), "c": np.array([True, False] * 4 + [True])}
    assert_agrees(byoc.load(made.path).run(feeds), onnxruntime_outputs(model, feeds))


def _positions() -> onnx.ModelProto:
    """The last n of as many positions as an input counts, for n rows: as of rotary embeddings."""
    text = """<ir_version: 8, opset_import: ["" : 15]>
    g (float[batch, n, 8] x, int32[1] count) => (float[b, m, 8] y)
    <int32 none = {0}, int32 each = {1}, int64[1] zero = {0}, int64[1] one = {1},
     int64[1] last = {9223372036854775807}, int64[3] apart = {1, -1, 1}> {
        positive = Exp (x)
        number = Squeeze (count)
        places = Range (none, number, each)
        floats = Cast <to = 1> (places)
        extents = Shape (x)
        rows = Slice (extents, one, apart_end, zero)
        begin = Neg (rows)
        taken = Slice (floats, begin, last, zero)
        column = Reshape (taken, apart)
        waves = Sin (column)
        turned = Mul (positive, waves)
        again = Slice (floats, begin, last, zero)
        other = Reshape (again, apart)
        moved = Cos (other)
        y = Sub (turned, moved)
    }"""
    model = onnx.parser.parse_model(text)
    end = onnx.numpy_helper.from_array(np.array([2]), "apart_end")
    model.graph.initializer.append(end)
    return model


def test_what_values_size_is_as_long_as_what_it_is_added_to(tmp_path: Path) -> None:
    """It had no known shape, and the network was refused."""
    model = _positions()
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    offloaded = sum(region.operators for region in report.regions)
    assert offloaded >= report.operators - 4, report.summary()
    loaded = byoc.load(tmp_path / "m.so")
    assert list(loaded.inputs[0].shape[:2]) == ["batch", "n"]
    for shape, count in (((1, 5, 8), 5), ((2, 3, 8), 9), ((1, 1, 8), 1)):
        inputs = {"x": random(*shape), "count": np.int32([count])}
        assert_agrees(loaded.run(inputs), onnxruntime_outputs(model, inputs))
    for count in (4, 1):  # ONNX Runtime repeats the one
        with pytest.raises(byoc.RunError, match=f"do not fit one another: {count} where 5 is"):
            loaded.run({"x": random(1, 5, 8), "count": np.int32([count])})
