"""Files with dynamic axes compile without shapes: what the axes get, that it is said, and right."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import byoc
from byoc.cli import main
from byoc.errors import AxesNote, CompileError
from byoc.extent import Extent
from byoc.frontends import import_model
from byoc.frontends.onnx import model_inputs, prepare
from byoc.frontends.onnx.dynamic_axes import DynamicAxis, joined, name_axes, note, set_shapes
from byoc.frontends.onnx.input_shapes import set_input_shapes
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model, random
from .test_symbolic_import import NEAREST, pyramid

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

Dims = dict[str, tuple[int, list[int | str | None]]]


def with_inputs(dims: Dims) -> onnx.ModelProto:
    """A model that has these inputs, by dtype and dimensions; it computes nothing of them."""
    inputs = [helper.make_tensor_value_info(name, *about) for name, about in dims.items()]
    output = helper.make_tensor_value_info("y", FLOAT, [1])
    node = helper.make_node("Constant", [], ["y"], value_floats=[1.0])
    graph = helper.make_graph([node], "inputs", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def names_of(dims: Dims) -> dict[str, list[str]]:
    axes = name_axes(set_input_shapes(with_inputs(dims), {}))
    return {name: [str(a.extent) for a in axes if a.input == name] for name in dims}


@pytest.mark.parametrize(
    ("dims", "wanted"),
    [
        ({"x": (FLOAT, ["n", 3, "h", "w"])}, {"x": ["n", "h", "w"]}),
        ({"x": (FLOAT, ["?", 3, None, "unk__12"])}, {"x": ["batch", "height", "width"]}),
        ({"x": (FLOAT, [None, None, "-1", 3])}, {"x": ["batch", "height", "width"]}),
        ({"x": (FLOAT, ["None", 3, "p2o.DynamicDimension.0", 64])}, {"x": ["batch", "height"]}),
        ({"x": (FLOAT, ["?", 2, "?", "?", "?"])}, {"x": ["batch", "depth", "height", "width"]}),
        (
            {"x": (FLOAT, ["?", 2, "?", "?", "?", "?"])},
            {"x": ["batch", "depth", "depth_2", "height", "width"]},
        ),
        ({"x": (FLOAT, ["batch size", "größe"])}, {"x": ["batch_size", "gr_e"]}),
        ({"x": (FLOAT, ["batch_size", "N"])}, {"x": ["batch_size", "N"]}),
        ({"x": (FLOAT, ["N", "2*w", "w"])}, {"x": ["N", "2*w", "w"]}),
        ({"x": (FLOAT, ["unk__1", "unk__1"])}, {"x": ["batch", "batch"]}),
        (
            {"ids": (INT64, ["?", "?"]), "mask": (INT64, ["?", "?"])},
            {"ids": ["batch", "sequence"], "mask": ["batch", "sequence_2"]},
        ),
        (
            {"x": (FLOAT, ["?", "?"]), "state": (FLOAT, [2, "?", 128])},
            {"x": ["batch", "samples"], "state": ["batch"]},
        ),
        (
            {"ids": (INT64, ["b", "s"]), "past_key": (FLOAT, ["b", 4, None, 8])},
            {"ids": ["b", "s"], "past_key": ["b", "past"]},
        ),
        (
            {"x": (INT64, ["batch_dim", "past + 1"]), "past": (FLOAT, ["batch_dim", "past"])},
            {"x": ["batch_dim", "past+1"], "past": ["batch_dim", "past"]},
        ),
    ],
)
def test_names(dims: Dims, wanted: dict[str, list[str]]) -> None:
    assert names_of(dims) == wanted


def perceptron(*inputs: list[int | str | None]) -> onnx.ModelProto:
    """A dense layer of the sum of inputs."""
    names = [f"x{number}" for number in range(len(inputs))]
    nodes = [
        helper.make_node("Sum", names, ["sum"]),
        helper.make_node("MatMul", ["sum", "w"], ["y"]),
    ]
    weights = {"w": random(64, 32)}
    return onnx_model(nodes, dict(zip(names, inputs, strict=True)), ["y"], weights)


def check(model: onnx.ModelProto, folder: Path, *shapes: list[list[int]]) -> byoc.Model:
    """The library, compiled without shapes, after a look at its answers at several sizes."""
    with pytest.warns(AxesNote):
        report = byoc.compile(model, folder / "m.so").report
    assert report.offloaded_macs == report.macs > 0
    loaded = byoc.load(folder / "m.so")
    for sizes in shapes:
        inputs = {
            value.name: random(*shape)
            for value, shape in zip(model_inputs(model), sizes, strict=True)
        }
        assert_agrees(loaded.run(inputs), onnxruntime_outputs(model, inputs))
    return loaded


def test_a_file_compiles_without_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, library = tmp_path / "model.onnx", tmp_path / "model.so"
    onnx.save(perceptron([None, "length", 64]), path)
    assert main(["compile", str(path), "-o", str(library)]) == 0
    said = (
        "dynamic axes: x0:[batch,length,64]; sizes run faster, such as"
        ' --input-shapes "x0:[1,128,64]"'
    )
    assert capsys.readouterr().err.splitlines()[0] == f"note: {said}"
    assert main(["inspect", str(library)]) == 0
    assert f"axes      {said}" in capsys.readouterr().out.splitlines()
    assert main(["verify", str(path), str(library)]) == 0
    loaded = byoc.load(library)
    assert str(loaded.inputs[0]) == "x0: float32[batch, length, 64]"
    x = {"x0": random(3, 7, 64)}
    assert_agrees(loaded.run(x), onnxruntime_outputs(path, x))


def test_inputs_that_are_added_share_their_sizes(tmp_path: Path) -> None:
    """Each has a sequence of its own, until they meet."""
    model = perceptron(["?", "?", 64], ["?", "?", 64])
    loaded = check(model, tmp_path, [[2, 5, 64], [2, 5, 64]], [[1, 9, 64], [1, 9, 64]])
    assert [info.shape for info in loaded.inputs] == [("batch", "sequence", 64)] * 2


def test_images_that_are_halved_get_the_least_multiples(tmp_path: Path) -> None:
    model = pyramid([], {}, scales=True, **NEAREST)
    loaded = check(model, tmp_path, [[1, 3, 8, 12]], [[1, 3, 4, 20]])
    assert loaded.inputs[0].shape == (1, 3, "4*height", "4*width")


@pytest.mark.parametrize("times", [6, 7])
def test_images_that_are_halved_often(tmp_path: Path, times: int) -> None:
    """Neither 32 nor the usual 224 can be halved so often."""
    nodes, weights, last = [], {}, "x"
    for i in range(times):
        weights[f"w{i}"] = random(4, 4 if i else 3, 3, 3)
        half = {"strides": [2, 2], "pads": [1] * 4, "kernel_shape": [3, 3]}
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"d{i}"], **half))
        last = f"d{i}"
    weights["u"] = random(4, 4, 4, 4)
    twice = {"strides": [2, 2], "pads": [1] * 4, "kernel_shape": [4, 4]}
    nodes.append(helper.make_node("ConvTranspose", [last, "u"], ["up"], **twice))
    nodes.append(helper.make_node("Add", ["up", f"d{times - 2}"], ["y"]))
    model = onnx_model(nodes, {"x": ["b", 3, "height", "width"]}, ["y"], weights)
    size = 2**times
    loaded = check(model, tmp_path, [[2, 3, size, 2 * size]])
    assert loaded.inputs[0].shape == ("b", 3, f"{size}*height", f"{size}*width")


def test_texts_beside_images_are_not_halved(tmp_path: Path) -> None:
    model = pyramid([helper.make_node("MatMul", ["text", "u"], ["z"])], {}, scales=True, **NEAREST)
    others = onnx_model([], {"text": [1, "tokens", 12]}, ["z"], {"u": random(12, 8)})
    for name in ("input", "output", "initializer"):
        getattr(model.graph, name).extend(getattr(others.graph, name))
    loaded = check(model, tmp_path, [[1, 3, 8, 12], [1, 5, 12]])
    assert [info.shape[1:-1] for info in loaded.inputs] == [(3, "4*height"), ("tokens",)]


def test_the_batch_alone_becomes_one(tmp_path: Path) -> None:
    """Whether Expand repeats the batch depends on it; the length may be any."""
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["wide"]),
        helper.make_node("MatMul", ["wide", "w"], ["y"]),
    ]
    weights = {"shape": np.array([3, 1, 64]), "w": random(64, 32)}
    model = onnx_model(nodes, {"x": ["batch", "length", 64]}, ["y"], weights)
    loaded = check(model, tmp_path, [[1, 5, 64]], [[1, 8, 64]])
    assert loaded.inputs[0].shape == (1, "length", 64)


def test_sizes_where_no_symbols_help() -> None:
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["wide"]),
        helper.make_node("MatMul", ["wide", "w"], ["y"]),
    ]
    weights = {"shape": np.array([3, 64]), "w": random(64, 32)}
    model = onnx_model(nodes, {"x": ["batch", 64]}, ["y"], weights)
    with pytest.warns(AxesNote, match=r'dynamic axes have sizes: --input-shapes "x:\[1,64\]"'):
        (x,) = import_model(model).inputs
    assert x.shape == (1, 64)


def test_names_of_given_shapes_are_not_taken_again() -> None:
    model = with_inputs({"x0": (FLOAT, ["?", 5]), "x1": (FLOAT, ["?", 3, "?", "?"])})
    axes = set_shapes(model, {"x0": ["height", 5]})
    assert [str(axis.extent) for axis in axes] == ["batch", "height_2", "width"]


def test_what_has_to_have_sizes_gets_usual_ones() -> None:
    with pytest.warns(AxesNote, match=r'"x0:\[1,128,64\]"'):
        (x,) = import_model(perceptron(["n", "len", 64]), sized=True).inputs
    assert x.shape == (1, 128, 64)


def test_many_inputs_are_a_short_line() -> None:
    model = with_inputs({f"x{number}": (FLOAT, [None, None]) for number in range(6)})
    said = note(model, set_shapes(model, {}))
    assert "x2:[batch,samples_3] and 3 more inputs; sizes run faster" in said


def test_prepare_leaves_axes_symbolic() -> None:
    dims = prepare(perceptron(["?", "len", 64])).graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["batch", "len", 64]


def emphasised() -> onnx.ModelProto:
    """Each sample less a part of the one before, between zeros, as front ends of speech do it."""
    parts = {"zero": [0], "one": [1], "end": [2**31], "last": [-1], "axis": [1]}
    ints = {name: np.array(values, np.int64) for name, values in parts.items()}
    nodes = [
        helper.make_node("Slice", ["x", "one", "end", "axis"], ["late"]),
        helper.make_node("Slice", ["x", "zero", "last", "axis"], ["early"]),
        helper.make_node("Slice", ["x", "zero", "one", "axis"], ["first"]),
        helper.make_node("Sub", ["late", "early"], ["differences"]),
        helper.make_node("Concat", ["first", "differences"], ["all"], axis=1),
        helper.make_node("Shape", ["all"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Sub", ["whole", "length"], ["missing"]),
        helper.make_node("Max", ["missing", "zero"], ["after"]),
        helper.make_node("Concat", ["zero", "zero", "zero", "after"], ["pads"], axis=0),
        helper.make_node("Pad", ["all", "pads"], ["padded"]),
        helper.make_node("Unsqueeze", ["padded", "axis"], ["line"]),
        helper.make_node("Conv", ["line", "w"], ["y"], strides=[8]),
    ]
    weights = {**ints, "whole": np.array([64], np.int64), "w": random(16, 1, 16)}
    return onnx_model(nodes, {"x": ["batch_size", "N"]}, ["y"], weights)


def test_symbols_of_no_empty_axis_follow_samples_and_pads(tmp_path: Path) -> None:
    check(emphasised(), tmp_path, [[1, 40]], [[2, 64]], [[1, 200]], [[2, 1]], [[1, 0]])
    with pytest.warns(AxesNote, match=r"x:\[batch_size,N\]"):
        import_model(emphasised())


def test_a_network_of_lines_of_text_gets_their_height(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["tall"], strides=[16, 2]),
        helper.make_node("ReduceMean", ["tall"], ["flat"], axes=[2]),
        helper.make_node("AveragePool", ["tall"], ["pooled"], kernel_shape=[3, 1]),
        helper.make_node("Concat", ["pooled", "flat"], ["y"], axis=1),
    ]
    model = onnx_model(nodes, {"x": ["?", 3, "?", "?"]}, ["y"], {"w": random(8, 3, 16, 1)})
    with pytest.warns(AxesNote, match=r"x:\[batch,3,48,width\]"):
        import_model(model)
    check(model, tmp_path, [[1, 3, 48, 32]], [[2, 3, 48, 50]])


def decoder(total: str, *, cache_first: bool) -> onnx.ModelProto:
    """Attention over a cache and new tokens, with a mask that is as long as both."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["q"]),
        helper.make_node("Concat", ["past", "x"], ["present"], axis=1),
        helper.make_node("Transpose", ["present"], ["k"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "k"], ["scores"]),
        helper.make_node("Add", ["scores", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "present"], ["y"]),
    ]
    cache = {"past": ["batch", "past_sequence_length", 64]}
    inputs: dict[str, list[int | str | None]] = {"mask": ["batch", 1, total]}
    inputs = cache | inputs if cache_first else inputs | cache
    inputs["x"] = ["batch", "sequence_length", 64]
    return onnx_model(nodes, inputs, ["y", "present"], {"w": random(64, 64, scale=0.1)})


@pytest.mark.parametrize("cache_first", [False, True])
@pytest.mark.parametrize(
    "total", ["past_sequence_length + sequence_length", "total_sequence_length"]
)
def test_a_mask_is_as_long_as_cache_and_input(
    total: str, cache_first: bool, tmp_path: Path
) -> None:
    model = decoder(total, cache_first=cache_first)
    sizes = {"past": (2, 5, 64), "mask": (2, 1, 8), "x": (2, 3, 64)}
    order = [value.name for value in model_inputs(model)]
    loaded = check(model, tmp_path, [list(sizes[name]) for name in order])
    shapes = {info.name: info.shape for info in loaded.inputs}
    assert shapes["mask"] == ("batch", 1, "past_sequence_length+sequence_length")
    assert byoc.verify(model, tmp_path / "m.so").holds
    with pytest.raises(byoc.ByocError):
        loaded.run({name: random(*shape) for name, shape in (sizes | {"mask": (2, 1, 7)}).items()})
    with pytest.warns(AxesNote, match=r"mask:\[1,1,144\]"):
        found = import_model(model, sized=True)
    assert {info.name: info.shape for info in found.inputs}["mask"] == (1, 1, 144)


def test_a_detector_gets_the_length_of_a_piece(tmp_path: Path) -> None:
    """Two ways down from a piece of sound meet where it is 512 to 767 samples long."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axis"], ["line"]),
        helper.make_node("Conv", ["line", "w"], ["one"], strides=[256]),
        helper.make_node("Conv", ["line", "v"], ["other"]),
        helper.make_node("ReduceMean", ["other"], ["flat"], axes=[2]),
        helper.make_node("Concat", ["one", "flat"], ["y"], axis=1),
    ]
    weights = {"axis": np.array([1], np.int64), "w": random(8, 1, 512), "v": random(8, 1, 16)}
    model = onnx_model(nodes, {"x": ["b", "samples"]}, ["y"], weights)
    check(model, tmp_path, [[1, 576]])


@pytest.mark.parametrize("too_general", [("t",), ("t", "t+1"), None])
def test_what_fails_after_the_import_is_tried_with_less_general_axes(
    too_general: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("byoc.compiler.compile")
    whole, tried = module.compile_partitioned, []

    def failing(done: object, *rest: object) -> object:
        tried.append(str(done.metadata.inputs[0].shape[-1]))
        if too_general is None or tried[-1] in too_general:
            raise CompileError(f"cannot compile {tried[-1]}")
        return whole(done, *rest)

    monkeypatch.setattr(module, "compile_partitioned", failing)
    graph = helper.make_graph(
        [helper.make_node("Tanh", ["x"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, [4, 3, "t"])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    if too_general is None:
        with pytest.raises(CompileError, match=r"cannot compile t$"):
            byoc.compile(model)
        assert {"t", "t+1", "128"} <= {*tried} and len({*tried}) == len(tried)
        return
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        done = byoc.compile(model)
    assert tried[:-1] == list(too_general)
    assert str(done.metadata.inputs[0].shape[-1]) == tried[-1] not in too_general
    *_, last = (str(told.message) for told in notes if told.category is AxesNote)
    assert f"x:[4,3,{tried[-1]}]" in last


@pytest.mark.parametrize("joined", ["Concat", "Add"])
def test_states_are_as_small_as_the_image_becomes(joined: str, tmp_path: Path) -> None:
    """As those of a network for videos: the image has multiples, its states learn from it."""

    def halved(x: str, weight: str, y: str) -> onnx.NodeProto:
        return helper.make_node("Conv", [x, weight], [y], strides=[2, 2], pads=[1, 1, 1, 1])

    def with_state(x: str, state: str, y: str) -> onnx.NodeProto:
        along = {"axis": 1} if joined == "Concat" else {}
        return helper.make_node(joined, [x, state], [y], **along)

    nodes = [
        *(halved("x", "v", "a"), halved("a", "w", "b")),
        *(with_state("a", "first", "c"), with_state("b", "second", "d")),
        helper.make_node("Resize", ["d", "", "twice"], ["e"], mode="nearest"),
        helper.make_node("Concat", ["c", "e"], ["y"], axis=1),
    ]
    weights = {"v": random(4, 3, 3, 3), "w": random(4, 4, 3, 3)}
    weights["twice"] = np.array([1, 1, 2, 2], np.float32)
    inputs: dict[str, list[int | str] | None] = {
        "x": ["n", 3, "height", "width"],
        "first": ["n", 4, "h1", "w1"],
        "second": ["n", 4, "h2", "w2"],
    }
    model = onnx_model(nodes, inputs, ["y"], weights)
    with pytest.warns(AxesNote, match=r"x:\[n,3,4\*height,4\*width\];"):
        done = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert done.report.left == () and len(done.report.regions) == 1
    with byoc.load(tmp_path / "m.so") as library:
        for n, h, w in ((1, 3, 2), (2, 1, 4)):
            arrays = {
                "x": random(n, 3, 4 * h, 4 * w),
                "first": random(n, 4, 2 * h, 2 * w),
                "second": random(n, 4, h, w),
            }
            assert_agrees(library.run(arrays), onnxruntime_outputs(model, arrays))


def test_unnamed_axes_of_an_encoder_are_not_those_of_its_decoder() -> None:
    inputs = ("ids", "encoder_hidden_states", "past.encoder.key", "past.decoder.key", "past.value")
    meanings = ("sequence", "sequence", "past", "past", "past")
    axes = tuple(
        DynamicAxis(name, 1, Extent(f"{meaning}_{place}"), meaning, False)
        for place, (name, meaning) in enumerate(zip(inputs, meanings, strict=True))
    )
    apart = [str(axis.extent) for axis in joined(axes, apart=True)]
    assert apart == ["sequence_0", "sequence_1", "past_2", "past_3", "past_3"]
    assert [str(axis.extent) for axis in joined(axes)] == ["sequence_0"] * 2 + ["past_2"] * 3


def test_multiples_of_the_file_that_may_not_be_empty_stay_multiples(tmp_path: Path) -> None:
    """As PyTorch writes ``32 * Dim("h")``: sizes of one more than such took their place."""
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[batch, 3, h, w] x) => (float[batch, 4, rows, columns] y)
        <int64[1] one = {1}, int64[1] two = {2}>
        {
          halved = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, a)
          again = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (halved, b)
          sides = Shape <start = 2> (x)
          less = Sub (sides, one)
          half = Div (less, two)
          more = Add (half, one)
          begin = Shape <end = 2> (again)
          size = Concat <axis = 0> (begin, more)
          doubled = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric",
                            nearest_mode = "floor"> (again, , , size)
          y = Add (halved, doubled)
        }"""
    )
    for name, shape in (("a", (4, 3, 3, 3)), ("b", (4, 4, 3, 3))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(random(*shape), name))
    for dim, text in zip(model.graph.input[0].type.tensor_type.shape.dim[2:], "hw", strict=True):
        dim.dim_param = f"8*{text}"
    onnx.save(model, tmp_path / "net.onnx")
    with pytest.warns(AxesNote, match=r"x:\[batch,3,8\*h\+8,8\*w\+8\]"):
        done = byoc.compile(tmp_path / "net.onnx", tmp_path / "net.so")
    assert done.report.left == () and len(done.report.regions) == 1
    with byoc.load(tmp_path / "net.so") as library:
        for shape in ((2, 3, 8, 16), (1, 3, 24, 8)):
            feed = {"x": random(*shape)}
            assert_agrees(library.run(feed), onnxruntime_outputs(model, feed))
