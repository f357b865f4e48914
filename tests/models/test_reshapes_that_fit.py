"""Reshapes that fit some sizes only: those are asked for, or each call is checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import byoc
from tests.reference import onnxruntime_outputs

Shape = Sequence[int | str]


def _model(shape: Shape, wanted: Sequence[int] | None, rank: int = 2) -> onnx.ModelProto:
    """A reshape between two functions; to numbers that are an input where none are ``wanted``."""
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, shape)]
    stored = []
    if wanted is None:
        inputs.append(value("s", TensorProto.INT64, [rank]))
    else:
        stored.append(numpy_helper.from_array(np.array(wanted, np.int64), "s"))
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "s"], ["b"]),
        helper.make_node("Sigmoid", ["b"], ["y"]),
    ]
    outputs = [value("y", TensorProto.FLOAT, None if wanted else ["p", "q"])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("shape", "wanted", "asked", "fits", "others"),
    [
        (["n"], [-1, 8], ["8*n"], [(16,), (8,)], [(10,)]),
        (["n", 6], [-1, 4], ["2*n", 6], [(2, 6)], [(1, 6), (3, 6)]),
        (["n", 6, "s"], [-1, 30], ["n", 6, 5], [(2, 6, 5), (1, 6, 5)], [(5, 6, 4)]),
        (["batch", "s", 6], [1, 0, 6], [1, "s", 6], [(1, 4, 6)], [(2, 4, 6)]),
        (["batch", "s", 6], [3, 0, 2, 3], [3, "s", 6], [(3, 4, 6)], [(1, 4, 6)]),
        (["batch", "s", 6], [0, 4, -1], ["batch", "2*s", 6], [(2, 2, 6), (1, 4, 6)], [(1, 3, 6)]),
    ],
)
def test_sizes_that_fit_are_asked_for(
    shape: Shape,
    wanted: Sequence[int],
    asked: Shape,
    fits: Sequence[tuple[int, ...]],
    others: Sequence[tuple[int, ...]],
    tmp_path: Path,
) -> None:
    model = _model(shape, wanted)
    report = byoc.compile(model, tmp_path / "model.so", min_bytes=0).report
    assert len(report.regions) == 1 and not report.left, report.summary()
    library = byoc.load(tmp_path / "model.so")
    assert list(library.inputs[0].shape) == asked
    for sizes in fits:
        x = {"x": _drawn(*sizes)}
        want = onnxruntime_outputs(model, x)["y"]
        np.testing.assert_allclose(library.run(x)["y"], want, rtol=1e-5, strict=True)
    for sizes in others:
        with pytest.raises(byoc.InputError, match="has shape"):
            library.run({"x": _drawn(*sizes)})


def test_a_product_of_sizes_is_checked_by_the_run(tmp_path: Path) -> None:
    """Of two sizes that are free. It read 35 elements of any other number."""
    model = _model(["batch", "s"], [5, 7])
    report = byoc.compile(model, tmp_path / "model.so", min_bytes=0).report
    assert len(report.regions) == 1 and not report.left, report.summary()
    library = byoc.load(tmp_path / "model.so")
    for sizes in ((5, 7), (7, 5), (35, 1)):
        x = {"x": _drawn(*sizes)}
        want = onnxruntime_outputs(model, x)["y"]
        np.testing.assert_allclose(library.run(x)["y"], want, rtol=1e-5, strict=True)
    with pytest.raises(
        byoc.RunError, match=r"batch\*s - 35 inside the network would be -31; pass other"
    ):
        library.run({"x": _drawn(2, 2)})


def test_names_that_a_user_gives_stay_and_are_checked(tmp_path: Path) -> None:
    model = _model(["batch", "s", 6], [1, 0, 6])
    done = byoc.compile(model, tmp_path / "model.so", {"x": ["b", "s", 6]}, min_bytes=0)
    assert len(done.report.regions) == 1 and not done.report.left
    library = byoc.load(tmp_path / "model.so")
    assert library.run({"x": _drawn(1, 4, 6)})["y"].shape == (1, 4, 6)
    with pytest.raises(byoc.RunError, match="inside the network would be 24; pass other inputs"):
        library.run({"x": _drawn(2, 4, 6)})


def test_sizes_that_are_computed_are_checked_by_the_run(tmp_path: Path) -> None:
    model = _model([4, 6], None)
    report = byoc.compile(model, tmp_path / "model.so", min_bytes=0).report
    assert len(report.regions) >= 2, report.summary()  # of Exp and of Sigmoid
    library = byoc.load(tmp_path / "model.so")
    x = _drawn(4, 6)
    for sizes in ((3, 8), (-1, 8), (0, -1)):
        given = {"x": x, "s": np.array(sizes)}
        want = onnxruntime_outputs(model, given)["y"]
        np.testing.assert_allclose(library.run(given)["y"], want, rtol=1e-5, strict=True)
    for sizes in ((5, 5), (-1, 5), (10, 10), (2, 2), (-1, -1), (-2, -12)):
        with pytest.raises(byoc.RunError, match="inside the network"):
            library.run({"x": x, "s": np.array(sizes)})


def test_windows_counted_as_quotients_of_sizes(tmp_path: Path) -> None:
    """An image as rows of patches, (h - 1) / 4 + 1 by (w - 1) / 4 + 1, as PyTorch writes them.

    ONNX divides towards 0, so that an image without pixels would have a patch.
    """
    value = helper.make_tensor_value_info
    one, four, less = (np.array(n, np.int64) for n in (1, 4, -1))
    weight = _drawn(8, 3, 7, 7)
    stored = {"w": weight, "one": one, "four": four, "less": less, "row": np.array([-1])}
    stored |= {"channels": np.array([8])}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], strides=[4, 4], pads=[3, 3, 3, 3])]
    for axis in (2, 3):
        at = f"{axis}"
        nodes += [
            helper.make_node("Shape", ["x"], [f"size{at}"], start=axis, end=axis + 1),
            helper.make_node("Squeeze", [f"size{at}"], [f"n{at}"]),
            helper.make_node("Add", ["less", f"n{at}"], [f"last{at}"]),
            helper.make_node("Div", [f"last{at}", "four"], [f"steps{at}"]),
            helper.make_node("Add", ["one", f"steps{at}"], [f"patches{at}"]),
        ]
    nodes += [
        helper.make_node("Shape", ["x"], ["batch"], start=0, end=1),
        helper.make_node("Mul", ["patches2", "patches3"], ["all"]),
        helper.make_node("Reshape", ["all", "row"], ["all1"]),
        helper.make_node("Concat", ["batch", "channels", "all1"], ["shape"], axis=0),
        helper.make_node("Reshape", ["c", "shape"], ["r"]),
        helper.make_node("Sigmoid", ["r"], ["y"]),
    ]
    x = value("x", TensorProto.FLOAT, ["b", 3, "h", "v"])
    kept = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "g", [x], [value("y", TensorProto.FLOAT, None)], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    report = byoc.compile(model, tmp_path / "model.so").report
    assert len(report.regions) == 1 and not report.left, report.summary()
    library = byoc.load(tmp_path / "model.so")
    assert list(library.inputs[0].shape) == ["b", 3, "h", "v"]
    for sizes in ((2, 3, 32, 31), (1, 3, 5, 4), (3, 3, 1, 30)):
        given = {"x": _drawn(*sizes)}
        want = onnxruntime_outputs(model, given)["y"]
        np.testing.assert_allclose(library.run(given)["y"], want, atol=1e-6, strict=True)
    with pytest.raises(byoc.ByocError):
        library.run({"x": _drawn(1, 3, 0, 5)})


def test_images_that_are_cut_into_blocks(tmp_path: Path) -> None:
    """As PyTorch's exporter writes pixel_unshuffle: -1 for the images, and halves of the sides."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, 3, h, w] x) => (float[p, 12, q, r] y)
        <int64[1] all = {-1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] twelve = {12}> {
          a = Exp(x)
          h = Shape<start = 2, end = 3>(x)
          w = Shape<start = 3>(x)
          rows = Div(h, two)
          columns = Div(w, two)
          apart = Concat<axis = 0>(all, three, rows, two, columns, two)
          blocks = Reshape(a, apart)
          turned = Transpose<perm = [0, 1, 3, 5, 2, 4]>(blocks)
          joined = Concat<axis = 0>(all, twelve, rows, columns)
          b = Reshape(turned, joined)
          y = Sigmoid(b)
        }""")
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    with byoc.load(made.path) as library:
        for shape in ((2, 3, 6, 8), (1, 3, 2, 4)):
            inputs = {"x": _drawn(*shape)}
            wanted = onnxruntime_outputs(model, inputs)["y"]
            np.testing.assert_allclose(library.run(inputs)["y"], wanted, atol=1e-6)
        with pytest.raises(byoc.InputError, match=r"must be 2\*h"):
            library.run({"x": _drawn(1, 3, 5, 4)})


def test_batches_of_two_inputs_are_one(tmp_path: Path) -> None:
    """As a decoder's layer folds the memory's batch after that of its own tokens."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, t, 16] x, float[m, s, 16] memory) => (float[p, q, 8] y)
        <int64[1] two = {2}, int64[1] eight = {8}> {
          batch = Shape<end = 1>(x)
          length = Shape<start = 1, end = 2>(memory)
          heads = Mul(batch, two)
          wide = Concat<axis = 0>(length, heads, eight)
          a = Transpose<perm = [1, 0, 2]>(memory)
          b = Reshape(a, wide)
          y = Sigmoid(b)
        }""")
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    with byoc.load(made.path) as library:
        for n in (2, 1, 5):
            inputs = {"x": _drawn(n, 3, 16), "memory": _drawn(n, 4, 16)}
            wanted = onnxruntime_outputs(model, inputs)["y"]
            np.testing.assert_allclose(library.run(inputs)["y"], wanted, atol=1e-6)


def test_the_last_row_of_any_number(tmp_path: Path) -> None:
    """As tf2onnx writes what a recurrent layer of Keras returns: a slice from -1 on, squeezed."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 15]>
        g (float[n, t, 6] x) => (float[n, 6] y)
        <int64[1] last = {-1}, int64[1] end = {2147483647}, int64[1] zero = {0}> {
          a = Exp(x)
          steps = Transpose<perm = [1, 0, 2]>(a)
          row = Slice(steps, last, end, zero)
          b = Squeeze(row, zero)
          y = Sigmoid(b)
        }""")
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    with byoc.load(made.path) as library:
        for shape in ((2, 5, 6), (1, 1, 6), (3, 2, 6)):
            inputs = {"x": _drawn(*shape)}
            wanted = onnxruntime_outputs(model, inputs)["y"]
            np.testing.assert_allclose(library.run(inputs)["y"], wanted, atol=1e-6)


def test_what_strides_leave_and_a_branch_squeezes(tmp_path: Path) -> None:
    """As PyTorch's exporter writes ``squeeze(-1)``: several lengths leave the one row."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 15]>
        g (float[1, 4, s] x, float[4, 4, 8] w) => (float[] y)
        <int64[1] last = {-1}, int64 place = {-1}, int64 one = {1}> {
          steps = Conv<strides = [4], pads = [3, 3]>(x, w)
          shape = Shape(steps)
          count = Gather(shape, place)
          single = Equal(count, one)
          row = If(single) <
            then_branch = then () => (squeezed) { squeezed = Squeeze(steps, last) },
            else_branch = otherwise () => (same) { same = Identity(steps) }>
          y = ReduceSum<keepdims = 0>(row)
        }""")
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert made.report.offloaded_macs == made.report.macs
    with byoc.load(made.path) as library:
        assert str(library.inputs[0].shape[2]) == "s"
        for length in (2, 3, 4, 5):
            inputs = {"x": _drawn(1, 4, length), "w": _drawn(4, 4, 8)}
            wanted = onnxruntime_outputs(model, inputs)["y"]
            np.testing.assert_allclose(library.run(inputs)["y"], wanted, atol=1e-5)
        with pytest.raises(byoc.RunError, match="2 where 1 is needed"):
            library.run({"x": _drawn(1, 4, 6), "w": _drawn(4, 4, 8)})
