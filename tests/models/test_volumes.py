"""Convolutions of volumes by those of images, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, numpy_helper
from onnx import helper as oh

import byoc

#: Batch, and sides of volumes.
SHAPE = (2, 6, 14, 15)

#: Kernel, attributes, and how the convolution is computed.
CASES = {
    "planes": ((1, 3, 3), {"pads": [0, 1, 1, 0, 1, 1]}, "Winograd"),
    "planes of stride 2": ((1, 3, 3), {"strides": [1, 2, 2]}, "implicit GEMM"),
    "planes of groups": ((1, 5, 3), {"group": 16, "pads": [0, 2, 0, 0, 1, 2]}, "depthwise"),
    "points": ((1, 1, 1), {}, "GEMM"),
    "points of stride 2": ((1, 1, 1), {"strides": [2, 2, 2]}, "implicit GEMM"),
    "columns": ((3, 1, 1), {"pads": [1, 0, 0, 1, 0, 0]}, "implicit GEMM"),
    "columns of stride 2": (
        (5, 1, 1),
        {"strides": [2, 1, 1], "pads": [3, 0, 0, 1, 0, 0]},
        "implicit GEMM",
    ),
    "columns of wide pads": ((3, 1, 1), {"pads": [1, 0, 1, 1, 0, 0]}, "implicit GEMM"),
    "columns of groups": ((3, 1, 1), {"group": 16, "dilations": [2, 1, 1]}, "depthwise"),
    "planes across the width": ((3, 3, 1), {"pads": [1, 1, 0, 1, 1, 0]}, "Winograd"),
    "planes across the height": ((3, 1, 3), {"strides": [2, 1, 1]}, "of stacked planes"),
    "groups across the width": (
        (3, 5, 1),
        {"group": 16, "pads": [2, 1, 0, 0, 2, 0], "strides": [2, 1, 1]},
        "depthwise",
    ),
    "small groups across the height": ((2, 1, 3), {"group": 4, "dilations": [2, 1, 1]}, "group"),
    "strides of unit taps": ((3, 3, 1), {"strides": [1, 1, 2]}, "implicit GEMM"),
    "pads of unit taps": ((1, 3, 1), {"pads": [1, 1, 0, 0, 1, 0]}, "implicit GEMM"),
    "cube": ((3, 3, 3), {"pads": [1] * 6}, "of planes"),
    "cube without padding": ((3, 3, 3), {}, "of planes"),
    "cube with holes": (
        (2, 3, 3),
        {"dilations": [3, 1, 1], "pads": [2, 1, 1, 3, 1, 1]},
        "of planes",
    ),
    "few": ((3, 3, 3), {"pads": [1] * 6}, "of stacked planes"),
    "few without padding": ((2, 3, 2), {}, "of stacked planes"),
    "few of stride 2": (
        (3, 2, 3),
        {"strides": [2, 2, 2], "pads": [1, 0, 1, 2, 1, 0]},
        "of stacked planes",
    ),
    "few with holes": (
        (2, 3, 3),
        {"dilations": [3, 2, 1], "pads": [2, 1, 1, 3, 1, 1]},
        "of stacked planes",
    ),
    "few of padding alone": ((2, 1, 3), {"pads": [3, 1, 1, 3, 1, 1]}, "of stacked planes"),
    "cube of groups": ((3, 3, 3), {"group": 16, "pads": [1] * 6}, "depthwise"),
    "cube of small groups": (
        (3, 3, 3),
        {"group": 4, "pads": [1] * 6, "strides": [1, 2, 2]},
        "of planes",
    ),
    "planes of padding alone": ((2, 3, 3), {"pads": [3, 1, 1, 3, 1, 1]}, "implicit GEMM"),
    "cube of stride 2": ((3, 3, 3), {"strides": [2, 2, 2], "pads": [1] * 6}, "GEMM of planes"),
    "cube of stride 3": (
        (4, 2, 2),
        {"strides": [3, 1, 2], "pads": [2, 1, 0, 3, 1, 0], "dilations": [2, 1, 1]},
        "GEMM of planes",
    ),
    "groups of stride 2": (
        (3, 3, 3),
        {"group": 16, "strides": [2, 2, 2], "pads": [1] * 6},
        "depthwise",
    ),
}


def _inputs(case: str) -> int:
    """Inputs of a case; groups of 16, and more than few for Winograd's algorithm."""
    if case.startswith("few"):
        return 3
    whole = ("cube", "cube without padding", "cube with holes", "planes", "planes across the width")
    return 96 if case in whole else 20 if case == "planes of padding alone" else 16


def _model(case: str, shape: list[int | str], residual: str) -> onnx.ModelProto:
    """An activation, and a sum with what a second convolution gives, before or behind it."""
    kernel, attributes, _ = CASES[case]
    random = np.random.default_rng(4)
    weights = {}
    for name in ("w", "v"):
        values = random.standard_normal((16, _inputs(case) // attributes.get("group", 1), *kernel))
        weights[name] = (values / np.sqrt(values[0].size)).astype(np.float32)
    weights["b"] = random.standard_normal(16).astype(np.float32)
    nodes = [oh.make_node("Conv", ["x", "w", "b"], ["t"], **attributes)]
    if residual:
        nodes += [oh.make_node("Conv", ["x", "v"], ["r"], **attributes)]
    if residual == "before":
        nodes += [oh.make_node("Add", ["t", "r"], ["s"]), oh.make_node("Relu", ["s"], ["y"])]
    elif residual == "behind":
        nodes += [oh.make_node("Tanh", ["t"], ["s"]), oh.make_node("Add", ["s", "r"], ["y"])]
    else:
        nodes += [oh.make_node("Sigmoid", ["t"], ["s"]), oh.make_node("Mul", ["t", "s"], ["y"])]
    info = oh.make_tensor_value_info
    graph = oh.make_graph(
        nodes,
        "volumes",
        [info("x", TensorProto.FLOAT, shape)],
        [info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=9)


def _check(model: onnx.ModelProto, library: Path, *shapes: tuple[int, ...]) -> None:
    session, loaded = ort.InferenceSession(model.SerializeToString()), byoc.load(library)
    for shape in shapes:
        x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
        (want,) = session.run(None, {"x": x})
        (found,) = loaded.run({"x": x}).values()
        limit = 3e-5 * np.abs(want).max(initial=1)
        np.testing.assert_allclose(found, want, rtol=0, atol=limit)


#: Each case with one kind of residual, and one of each way with all of them.
RESIDUALS = ("", "before", "behind")
OF_A_WAY = {CASES[case][2]: case for case in CASES}.values()
SUMS = sorted(
    {(case, RESIDUALS[number % 3]) for number, case in enumerate(CASES)}
    | {(case, residual) for case in OF_A_WAY for residual in RESIDUALS}
)


@pytest.mark.parametrize(("case", "residual"), SUMS)
def test_convolution(case: str, residual: str, tmp_path: Path) -> None:
    shape = (SHAPE[0], _inputs(case), *SHAPE[1:])
    model = _model(case, [*shape], residual)
    done = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert done.report.left == () and len(done.report.regions) == 1
    taken = [use.algorithm for use in done.report.kernels if use.macs]
    # A sum behind an activation is none over planes, but for the kernel of volumes.
    summed = CASES[case][2].endswith("of planes")
    if residual != "behind" or not summed:
        assert len(taken) == 1 and CASES[case][2] in taken[0]
    _check(model, tmp_path / "m.so", shape)


@pytest.mark.parametrize("case", CASES)
def test_open_batch(case: str, tmp_path: Path) -> None:
    """Volumes are computed one after another, each as those of fixed sizes are. The sides of half
    of the cases are open as well."""
    sides = list(CASES).index(case) % 2
    way, inputs = CASES[case][2], _inputs(case)
    model = _model(case, ["n", inputs, 6, *(("h", "w") if sides else SHAPE[2:])], "before")
    done = byoc.compile(model, tmp_path / "m.so", dump_code=tmp_path / "code", min_bytes=0)
    assert done.report.left == () and len(done.report.regions) == 1
    (taken,) = (use.algorithm for use in done.report.kernels if use.algorithm)
    assert way in taken, taken
    source = "".join(file.read_text() for file in (tmp_path / "code").glob("*.c"))
    assert ("for (int64_t dim_place0 = 0;" in source) == ("of planes" in taken)
    _check(model, tmp_path / "m.so", *((n, inputs, *SHAPE[1:]) for n in (2, 1, 5)))


@pytest.mark.parametrize("case", CASES)
def test_open_sizes(case: str, tmp_path: Path) -> None:
    """Sums of planes ask for a fixed depth, stacks of them do not."""
    inputs = _inputs(case)
    model = _model(case, ["n", inputs, "d", "h", "w"], "before")
    done = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert done.report.left == () and len(done.report.regions) == 1
    stacked = ["of stacked planes" in use.algorithm for use in done.report.kernels]
    assert any(stacked) == ("of stacked planes" in CASES[case][2])
    _check(model, tmp_path / "m.so", (2, inputs, *SHAPE[1:]), (1, inputs, 9, 7, 8))


@pytest.mark.parametrize("shape", [[1, 1, 9, 8, 24], ["n", 1, "d", "h", "w"]])
def test_volume_of_one_channel(shape: list[int | str], tmp_path: Path) -> None:
    """Short lines of taps: planes across the width, as a lambda layer's positions are."""
    weight = np.random.default_rng(3).standard_normal((16, 1, 5, 7, 1)).astype(np.float32) / 6
    node = oh.make_node("Conv", ["x", "w"], ["y"], pads=[2, 3, 0, 2, 3, 0])
    graph = oh.make_graph(
        [node],
        "lambda",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [oh.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=9)
    done = byoc.compile(model, tmp_path / "m.so", min_bytes=0, dump_code=tmp_path)
    assert done.report.left == () and len(done.report.regions) == 1
    assert not any("ext_conv3d(" in file.read_text() for file in tmp_path.glob("*.c"))
    shapes = [(1, 1, 9, 8, 24)] + ([(2, 1, 5, 8, 3), (0, 1, 9, 8, 4)] if "n" in shape else [])
    _check(model, tmp_path / "m.so", *shapes)


#: Kernel and attributes of transposed convolutions.
TRANSPOSED = {
    "no overlap": ((2, 2, 2), {"strides": [2, 2, 2]}),
    "overlap": ((3, 3, 3), {"strides": [2, 2, 2], "pads": [1] * 6, "output_padding": [1] * 3}),
    "groups": ((3, 4, 3), {"strides": [3, 2, 1], "pads": [0, 1, 2, 1, 0, 0], "group": 2}),
    "holes": (
        (3, 2, 3),
        {"strides": [2, 2, 1], "dilations": [3, 1, 2], "pads": [3, 0, 1, 2, 1, 0]},
    ),
    "stride 1": ((2, 3, 2), {"pads": [0, 1, 1, 1, 0, 0]}),
    "cut to less": ((2, 2, 2), {"pads": [2, 0, 0, 0, 2, 0]}),
    "groups and holes": ((2, 3, 2), {"strides": [3, 1, 2], "dilations": [2, 1, 1], "group": 2}),
    "more cut off than taps reach": ((2, 2, 1), {"strides": [4, 1, 2], "pads": [2, 0, 1, 1, 1, 1]}),
}
#: Those with outputs that have no tap.
UNTOUCHED = ("groups and holes", "more cut off than taps reach")


@pytest.mark.parametrize("case", TRANSPOSED)
@pytest.mark.parametrize("size", ["fixed", "open"])
def test_transposed(case: str, size: str, tmp_path: Path) -> None:
    """A sum of two, with a bias and an activation, of few outputs and of more in turn."""
    outputs = (6, 20)[(list(TRANSPOSED).index(case) + (size == "open")) % 2]
    kernel, attributes = TRANSPOSED[case]
    random = np.random.default_rng(9)
    taps = (4, outputs // attributes.get("group", 1), *kernel)
    weights = {name: random.standard_normal(taps) for name in "wv"}
    weights["b"] = random.standard_normal(outputs)
    nodes = [
        oh.make_node("ConvTranspose", ["x", "w", "b"], ["t"], **attributes),
        oh.make_node("ConvTranspose", ["x", "v"], ["r"], **attributes),
        oh.make_node("Add", ["t", "r"], ["s"]),
        oh.make_node("Relu", ["s"], ["y"]),
    ]
    shape: list[int | str] = ["n", 4, "d", "h", "w"] if size == "open" else [2, 4, 3, 5, 4]
    graph = oh.make_graph(
        nodes,
        "volumes",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [oh.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()],
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    compiled = byoc.compile(model, tmp_path / "model.so", min_bytes=0)
    assert compiled.report.left == () and len(compiled.report.regions) == 1
    placed = case == "no overlap" and outputs < 10
    ways = {use.algorithm for use in compiled.report.kernels}
    assert ("conv3d_transpose" in ways) != (placed or case in UNTOUCHED)
    session = ort.InferenceSession(model.SerializeToString())
    with byoc.load(tmp_path / "model.so") as library:
        given = ((2, 3, 5, 4), (1, 5, 3, 7)) if size == "open" else ((2, 3, 5, 4),)
        for count, *sides in given:
            x = random.standard_normal((count, 4, *sides)).astype(np.float32)
            (wanted,) = session.run(None, {"x": x})
            np.testing.assert_allclose(library.run({"x": x})["y"], wanted, atol=1e-4)


#: Operator and attributes of pools.
POOLED = {
    "maxima": ("MaxPool", {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
    "maxima with padding": (
        "MaxPool",
        {"kernel_shape": [3, 2, 3], "strides": [2, 1, 2], "pads": [1, 0, 1, 1, 1, 0]},
    ),
    "maxima rounded up": ("MaxPool", {"kernel_shape": [2] * 3, "strides": [2] * 3, "ceil_mode": 1}),
    "maxima along the depth": ("MaxPool", {"kernel_shape": [3, 1, 1]}),
    "means": ("AveragePool", {"kernel_shape": [2, 3, 2], "strides": [2, 1, 1]}),
    "means with padding": (
        "AveragePool",
        {"kernel_shape": [2, 3, 2], "pads": [1, 1, 0, 0, 1, 1], "count_include_pad": 1},
    ),
    "means of what is there": (
        "AveragePool",
        {"kernel_shape": [3, 2, 3], "strides": [2, 1, 2], "pads": [1, 0, 1, 1, 1, 0]},
    ),
    "means rounded up": (
        "AveragePool",
        {"kernel_shape": [3, 2, 2], "strides": [2] * 3, "pads": [1, 0, 1] * 2, "ceil_mode": 1},
    ),
}


@pytest.mark.parametrize("case", POOLED)
@pytest.mark.parametrize("channels", [3, 9])
def test_pools_of_open_volumes(case: str, channels: int, tmp_path: Path) -> None:
    operator, attributes = POOLED[case]
    shape = ["n", channels, "d", "h", "w"]
    graph = oh.make_graph(
        [oh.make_node(operator, ["x"], ["t"], **attributes), oh.make_node("Tanh", ["t"], ["y"])],
        "volumes",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [oh.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    compiled = byoc.compile(model, tmp_path / "model.so", min_bytes=0)
    assert compiled.report.left == () and len(compiled.report.regions) == 1
    session, random = ort.InferenceSession(model.SerializeToString()), np.random.default_rng(2)
    with byoc.load(tmp_path / "model.so") as library:
        for sizes in ((2, 4, 5, 6), (1, 7, 3, 4), (0, 5, 5, 5)):
            x = random.standard_normal((sizes[0], channels, *sizes[1:])).astype(np.float32)
            (wanted,) = session.run(None, {"x": x})
            np.testing.assert_allclose(library.run({"x": x})["y"], wanted, atol=1e-6)
