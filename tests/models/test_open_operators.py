"""Operators of tensors whose axes are all open, without a size given, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import byoc
from byoc.errors import RunError
from tests.reference import assert_agrees, onnxruntime_outputs


def model_of(
    nodes: list[onnx.NodeProto],
    shape: list[int | str],
    opset: int = 17,
    **constants: np.ndarray,
) -> onnx.ModelProto:
    """Nodes from ``x`` of a shape to ``y``."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "open",
        [info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info(name) for name in nodes[-1].output],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def drawn(*shape: int) -> np.ndarray:
    """Numbers of which some are equal."""
    return np.random.default_rng(5).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_hardmax(tmp_path: Path, opset: int, axis: int | None) -> None:
    """The first of equal elements; over all the axes from one on before opset 13."""
    attributes = {} if axis is None else {"axis": axis}
    model = model_of(
        [helper.make_node("Hardmax", ["x"], ["y"], **attributes)], ["n", "t", "c"], opset
    )
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    with byoc.load(made.path) as library:
        for shape in ((2, 3, 5), (1, 4, 1), (7, 1, 2)):
            inputs = {"x": drawn(*shape)}
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


@pytest.mark.parametrize("opset", [11, 13])
def test_hardmax_of_nothing(tmp_path: Path, opset: int) -> None:
    cut = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array([number])))
        for name, number in (("zero", 0), ("last", 2))
    ]
    nodes = [
        *cut,
        helper.make_node("Slice", ["x", "zero", "zero", "last"], ["e"]),
        helper.make_node("Hardmax", ["e"], ["y"], axis=0),
    ]
    model = model_of(nodes, [5, 4, 3], opset)
    byoc.compile(model, tmp_path / "m.so")
    with byoc.load(tmp_path / "m.so") as library:
        inputs = {"x": drawn(5, 4, 3)}
        assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


WINDOWS = {
    "side by side": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "over the edge": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "rounded up": {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1},
    "with gaps, by columns": {"kernel_shape": [3, 2], "dilations": [2, 1], "storage_order": 1},
    "more edge than image": {"kernel_shape": [7, 7], "pads": [6, 5, 6, 5], "strides": [1, 1]},
    "of lines": {"kernel_shape": [3], "strides": [2], "pads": [1, 1]},
    "of volumes": {"kernel_shape": [2, 2, 2], "strides": [2, 1, 2], "storage_order": 1},
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("size", ["fixed", "open"])
def test_places_in_images(name: str, size: str, tmp_path: Path) -> None:
    """Of elements of which many are equal, in any number of images."""
    window = WINDOWS[name]
    rank = len(window["kernel_shape"])
    sizes = [7, 9, 5][:rank]
    pool = helper.make_node("MaxPool", ["x"], ["p", "i"], **window)
    extents = ["d", "h", "w"][:rank] if size == "open" else sizes
    model = model_of([pool, helper.make_node("Cast", ["i"], ["y"], to=1)], ["n", 2, *extents])
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    with byoc.load(made.path) as library:
        for count in (1, 3):
            some = sizes if size == "fixed" else [extent + count for extent in sizes]
            inputs = {"x": np.round(2 * drawn(count, 2, *some))}
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


def test_pools_that_tell_places(tmp_path: Path) -> None:
    """And what puts the greatest elements back there, as SegNet and ENet do."""
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p", "i"], **window),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("MaxUnpool", ["q", "i"], ["y"], **window),
    ]
    model = model_of(nodes, ["n", 3, "h", "w"])
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert made.report.offloaded
    with byoc.load(made.path) as library:
        for shape in ((1, 3, 4, 6), (2, 3, 8, 2)):
            inputs = {"x": drawn(*shape)}
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


@pytest.mark.parametrize("slopes", [(5,), (4, 1), (4, 5)], ids=str)
def test_slopes_tell_extents(tmp_path: Path, slopes: tuple[int, ...]) -> None:
    """Slopes broadcast to the image and never the other way round."""
    values = np.linspace(-1, 1, int(np.prod(slopes)), dtype=np.float32).reshape(slopes)
    model = model_of([helper.make_node("PRelu", ["x", "s"], ["y"])], ["n", "t", "c"], s=values)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    with byoc.load(made.path) as library:
        for batch in (1, 3):
            inputs = {"x": drawn(batch, 4, 5)}
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


@pytest.mark.parametrize("shape", [["n", 3, 3], ["n", "m", 2, 2], ["n", 1, 1]])
def test_determinants_of_any_number(shape: list[int | str], tmp_path: Path) -> None:
    model = model_of([helper.make_node("Det", ["x"], ["y"])], shape)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    with byoc.load(made.path) as library:
        for sizes in ((1, 1), (4, 3), (7, 2)):
            given = [*sizes[: len(shape) - 2], *shape[-2:]]
            inputs = {"x": drawn(*given)}
            wanted = np.linalg.det(inputs["x"].astype(np.float64))
            np.testing.assert_allclose(library.run(inputs)["y"], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("shape", [["n", 9], ["n", "t"]])
def test_counts_of_words_in_any_number_of_texts(
    mode: str, shape: list[int | str], tmp_path: Path
) -> None:
    counted = {
        "mode": mode,
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": 2,
        "ngram_counts": [0, 3],
        "ngram_indexes": [0, 4, 2, 3, 1],
        "pool_int64s": [2, 3, 5, 2, 3, 5, 2],
        "weights": [0.5, 1.0, 2.0, 3.0, 0.25],
    }
    nodes = [
        helper.make_node("Cast", ["x"], ["words"], to=TensorProto.INT64),
        helper.make_node("TfIdfVectorizer", ["words"], ["y"], **counted),
    ]
    model = model_of(nodes, shape)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    with byoc.load(made.path) as library:
        for rows, words in ((1, 9), (5, 9), *(((3, 4), (2, 2), (2, 1)) * (shape[1] == "t"))):
            texts = np.random.default_rng(rows).integers(2, 6, (rows, words))
            inputs = {"x": texts.astype(np.float32)}
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


def test_rows_at_places_as_index_copy_is_exported(tmp_path: Path) -> None:
    """PyTorch's older exporter writes one extent of the tensor's shape anew, for the places."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Shape", ["places"], ["count"]),
        helper.make_node("ScatterElements", ["shape", "axis", "count"], ["wide"]),
        helper.make_node("Equal", ["wide", "none"], ["left_out"]),
        helper.make_node("Where", ["left_out", "ones", "wide"], ["extents"]),
        helper.make_node("Unsqueeze", ["places", "around"], ["upright"]),
        helper.make_node("Expand", ["upright", "extents"], ["whole"]),
        helper.make_node("Exp", ["x"], ["source"]),
        helper.make_node("Slice", ["source", "zero", "two", "axis"], ["rows"]),
        helper.make_node("ScatterElements", ["x", "whole", "rows"], ["y"], axis=2),
    ]
    lists = {"places": [3, 1], "axis": [2], "none": [-1] * 4, "ones": [1] * 4, "around": [0, 1, 3]}
    constants = {name: np.array(values) for name, values in (lists | {"zero": [0]}).items()}
    model = model_of(nodes, ["n", 3, 8, "d"], two=np.array([2]), **constants)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    with byoc.load(made.path) as library:
        for shape in ((2, 3, 8, 4), (1, 3, 8, 7)):
            inputs = {"x": drawn(*shape)}
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


def test_parts_of_an_open_axis(tmp_path: Path) -> None:
    """GLU along an axis whose half is open."""
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=1),
        helper.make_node("Sigmoid", ["b"], ["gate"]),
        helper.make_node("Mul", ["a", "gate"], ["y"]),
    ]
    model = model_of(nodes, [2, "n", 3])
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    with byoc.load(made.path) as library:
        for length in (2, 10):
            inputs = {"x": drawn(2, length, 3)}
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


def test_smooth_images_of_any_number(tmp_path: Path) -> None:
    """Antialiased to a known size, with sizes that begin with the open one."""
    nodes = [
        helper.make_node("Shape", ["x"], ["first"], end=2),
        helper.make_node("Concat", ["first", "size"], ["sizes"], axis=0),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", antialias=1),
    ]
    model = model_of(nodes, ["n", 3, 10, 20], 18, size=np.array([3, 7]))
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    with byoc.load(made.path) as library:
        for count in (1, 4):
            inputs = {"x": drawn(count, 3, 10, 20)}
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


def test_rows_that_a_router_chose_are_added(tmp_path: Path) -> None:
    """``index_add`` of an expert, which PyTorch exports with an Expand to the first row of all."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[p,8] past, float[b,n,8] x) => (float[r,8] y, float[m,8] z)
        <float[8,8] w, float zero = {0}, int64 first = {0}, int64[1] none = {0}, int64[1] one = {1},
         int64[2] flat = {-1, 8}>
        {
          all_rows = Reshape (x, flat)
          column = Gather <axis = 1> (all_rows, first)
          chosen = Greater (column, zero)
          places = NonZero (chosen)
          rows = Squeeze (places, none)
          given = Gather (all_rows, rows)
          product = MatMul (given, w)
          shape = Shape (all_rows)
          all = ConstantOfShape (shape)
          row = Slice (all, none, one, none)
          row_shape = Shape (row)
          added = Expand (product, row_shape)
          at = Unsqueeze (rows, one)
          added_shape = Shape (added)
          everywhere = Expand (at, added_shape)
          sums = ScatterElements <axis = 0, reduction = "add"> (all, everywhere, added)
          y = Add (all_rows, sums)
          joined = Concat <axis = 0> (past, y)
          z = MatMul (joined, w)
        }"""
    )
    w = np.random.default_rng(5).standard_normal((8, 8), "float32")
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    shapes = {"past": ["p", 8], "x": ["b", "n", 8]}
    report = byoc.compile(model, tmp_path / "m.so", shapes, min_bytes=0).report
    assert {left.op for left in report.left} == {"relax.nonzero"}
    library = byoc.load(tmp_path / "m.so")
    for p, b, n in ((0, 1, 5), (4, 2, 1), (1, 3, 3)):  # no row before: the cache of a first call
        rng = np.random.default_rng(n)
        inputs = {
            "past": rng.standard_normal((p, 8), "float32"),
            "x": rng.standard_normal((b, n, 8), "float32"),
        }
        want = onnxruntime_outputs(model, inputs)
        for name, got in library.run(inputs).items():
            np.testing.assert_allclose(got, want[name], rtol=1e-5, atol=1e-5, strict=True)
    with pytest.raises(RunError):
        library.run(inputs | {"x": np.zeros((1, 0, 8), "float32")})
