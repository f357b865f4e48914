"""Padding by name with strides, of images whose sides nobody gave, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx import helper as oh

import byoc
from byoc.frontends.onnx.same_padding import same_pads
from tests.reference import onnxruntime_outputs

#: Operator, window, strides, and what else is said.
CASES = {
    "window of 3": ("Conv", [3, 3], [2, 2], {}),
    "window of 5, strides 3 and 2": ("Conv", [5, 4], [3, 2], {}),
    "window of 2": ("Conv", [2, 2], [2, 2], {}),
    "points": ("Conv", [1, 1], [2, 2], {}),
    "holes": ("Conv", [3, 3], [2, 3], {"dilations": [2, 3]}),
    "depthwise": ("Conv", [3, 5], [2, 2], {"group": 4}),
    "maxima": ("MaxPool", [3, 3], [2, 2], {}),
    "maxima of 2": ("MaxPool", [2, 2], [2, 2], {}),
    "means": ("AveragePool", [3, 3], [2, 2], {}),
    "means of 2": ("AveragePool", [2, 2], [2, 2], {}),
    "means that count padding": ("AveragePool", [3, 5], [2, 2], {"count_include_pad": 1}),
    "maxima, rounded up": ("MaxPool", [3, 2], [2, 1], {"ceil_mode": 1}),
    "means, rounded up": ("AveragePool", [3, 2], [2, 1], {"ceil_mode": 1}),
    "lines": ("Conv", [5], [2], {}),
    "maxima of lines": ("MaxPool", [3], [2], {}),
    "volumes": ("Conv", [3, 3, 3], [2, 2, 2], {}),
}

#: Of windows that begin at one place for all sizes, and those that kernels pad.
WITHOUT_COPY = ("window of", "points", "holes", "depthwise", "maxima of 2", "means of 2")


def _model(case: str, name: str) -> onnx.ModelProto:
    operator, window, strides, more = CASES[case]
    rng, weights = np.random.default_rng(5), []
    if operator == "Conv":
        shape = (8, 4 // more.get("group", 1), *window)
        weights = [numpy_helper.from_array(rng.standard_normal(shape, dtype=np.float32), "w")]
    attributes = {"auto_pad": name, "kernel_shape": window, "strides": strides, **more}
    nodes = [
        oh.make_node("Tanh", ["x"], ["t"]),
        oh.make_node(operator, ["t", *(weight.name for weight in weights)], ["c"], **attributes),
        oh.make_node("Relu", ["c"], ["y"]),
    ]
    sides = ["n", 4, *"dhw"[-len(window) :]]
    x = oh.make_tensor_value_info("x", TensorProto.FLOAT, sides)
    y = oh.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = oh.make_graph(nodes, "padded", [x], [y], weights)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 19)], ir_version=9)


def _with_pads(model: onnx.ModelProto, name: str, sides: tuple[int, ...]) -> onnx.ModelProto:
    """The convolution with numbers, as ONNX Runtime takes no name for one with holes."""
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    node = changed.graph.node[1]
    given = {a.name: list(a.ints) for a in node.attribute}
    numbers = (given[key] for key in ("kernel_shape", "strides", "dilations"))
    pads = same_pads(sides, *numbers, lower=name == "SAME_LOWER", pool=False)
    kept = [a for a in node.attribute if a.name != "auto_pad"]
    del node.attribute[:]
    node.attribute.extend([*kept, oh.make_attribute("pads", pads)])
    return changed


@pytest.mark.parametrize("name", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("case", CASES)
def test_any_sides(case: str, name: str, tmp_path: Path) -> None:
    model = _model(case, name)
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    rank = len(CASES[case][1])
    with byoc.load(tmp_path / "m.so") as library:
        for sides in ((5, 8, 7), (4, 6, 9), (3, 1, 2), (7, 11, 12), (2, 13, 4)):
            x = np.random.default_rng(6).standard_normal((2, 4, *sides[-rank:]), dtype=np.float32)
            plain = _with_pads(model, name, sides[-rank:]) if case == "holes" else model
            want = onnxruntime_outputs(plain, {"x": x})["y"]
            np.testing.assert_allclose(library.run({"x": x})["y"], want, rtol=1e-5, atol=1e-5)
        empty = np.zeros((0, 4, 5, 6, 7)[: 2 + rank], np.float32)
        assert library.run({"x": empty})["y"].size == 0


@pytest.mark.parametrize("case", [c for c in CASES if c.startswith(WITHOUT_COPY)] + ["maxima"])
def test_kernels_pad(case: str, tmp_path: Path) -> None:
    byoc.compile(_model(case, "SAME_UPPER"), tmp_path / "m.so", min_bytes=0, dump_code=tmp_path)
    (code,) = tmp_path.glob("*.c")
    assert code.read_text().count("ext_copy_params){") <= 2  # to channels last, and back


@pytest.mark.parametrize("name", ["SAME_UPPER", "SAME_LOWER"])
def test_products_of_integers_stay(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    constants = {
        "w": rng.integers(-100, 100, (8, 4, 3, 3)).astype(np.int8),
        "s": np.float32(0.1),
        "z": np.uint8(120),
        "w_z": np.int8(0),
        "y_s": np.float32(2.0),
    }
    names = ["x", "s", "z", "w", "s", "w_z", "y_s", "z"]
    node = oh.make_node("QLinearConv", names, ["y"], auto_pad=name, strides=[2, 2])
    x = oh.make_tensor_value_info("x", TensorProto.UINT8, ["n", 4, "h", "w"])
    y = oh.make_tensor_value_info("y", TensorProto.UINT8, None)
    weights = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    graph = oh.make_graph([node], "quantised", [x], [y], weights)
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert report.left == () and "GEMM, int8" in {kernel.algorithm for kernel in report.kernels}
    with byoc.load(tmp_path / "m.so") as library:
        for sides in ((8, 7), (5, 6), (1, 2)):
            image = rng.integers(0, 256, (2, 4, *sides)).astype(np.uint8)
            want = onnxruntime_outputs(model, {"x": image})["y"]
            np.testing.assert_array_equal(library.run({"x": image})["y"], want)
