"""Operators that ONNX had on trial up to opset 9, and forms of others that it dropped later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import byoc
import byoc.frontends.onnx.backend as backend
from byoc.errors import ImportFailure
from byoc.frontends.onnx import import_onnx, prepare
from tests.ir.graphs import onnx_model, random
from tests.reference import assert_agrees, onnxruntime_outputs

CASES: dict[str, dict[str, Any]] = {
    "Affine": {"alpha": 0.5, "beta": 0.2},
    "Crop": {"border": [1, 2, 0, 3]},
    "ImageScaler": {"scale": 0.5, "bias": [0.1, 0.2, 0.3]},
    "MeanVarianceNormalization": {"across_channels": 1, "normalize_variance": 1},
    "ParametricSoftplus": {"alpha": 1.5, "beta": 0.7},
    "ScaledTanh": {"alpha": 1.5, "beta": 0.7},
}
#: Other forms of the same operators.
FORMS: list[tuple[str, dict[str, Any]]] = [
    *CASES.items(),
    ("Crop", {"border": [1, 2, 1, 2], "scale": [5, 6]}),
    ("MeanVarianceNormalization", {"across_channels": 1, "normalize_variance": 0}),
    ("MeanVarianceNormalization", {"across_channels": 0, "normalize_variance": 0}),
    ("MeanVarianceNormalization", {"across_channels": 0}),
]


@pytest.mark.slow
def test_agree_with_onnxruntime() -> None:
    """Each stands before a convolution, with open sizes."""
    nodes = []
    for place, (operator, attributes) in enumerate(FORMS):
        nodes.append(helper.make_node(operator, ["x"], [f"a{place}"], **attributes))
        nodes.append(helper.make_node("Conv", [f"a{place}", "w"], [f"y{place}"]))
    outputs = [f"y{place}" for place in range(len(FORMS))]
    weights = {"w": random(4, 3, 3, 3)}
    model = onnx_model(nodes, {"x": ["n", 3, "h", "w_"]}, outputs, weights, opset=7)
    for shape in ((2, 3, 11, 13), (1, 3, 12, 9)):
        inputs = {"x": random(*shape)}
        rep = backend.prepare(model)
        results = rep.run(inputs)
        assert rep.report.left == () and len(rep.report.regions) == 1
        found = dict(zip(results._fields, results, strict=True))
        assert_agrees(found, onnxruntime_outputs(model, inputs))


def test_slices_whose_bounds_are_constants() -> None:
    node = helper.make_node("DynamicSlice", ["x", "starts", "ends", "axes"], ["a"])
    weights = {
        name: np.array(value, np.int64)
        for name, value in {"starts": [1, -5], "ends": [-1, 9999], "axes": [2, 1]}.items()
    }
    model = onnx_model(
        [node, helper.make_node("Exp", ["a"], ["y"])], {"x": ["n", 9, 6]}, ["y"], weights, opset=7
    )
    inputs = {"x": random(2, 9, 6)}
    rep = backend.prepare(model, min_bytes=0)
    (found,) = rep.run(inputs)
    assert rep.report.left == () and len(rep.report.regions) == 1
    assert_agrees({"y": found}, onnxruntime_outputs(model, inputs))


@pytest.mark.parametrize(
    ("operator", "attributes", "says"),
    [
        ("Affine", {"alpha": 2.0}, "no attribute beta"),
        ("ScaledTanh", {}, "no attribute alpha and beta"),
        ("ImageScaler", {"bias": [1.0, 2.0]}, "ImageScaler"),
        ("Crop", {"border": [1, 2]}, "Crop"),
        ("Crop", {"border": [1, 2, -1, 0]}, "Crop"),
    ],
)
def test_forms_that_are_none_are_refused(
    operator: str, attributes: dict[str, Any], says: str
) -> None:
    node = helper.make_node(operator, ["x"], ["y"], "it", **attributes)
    model = onnx_model([node], {"x": [1, 3, 5, 5]}, ["y"], opset=7)
    with pytest.raises(ImportFailure, match=says):
        import_onnx(prepare(model))


@pytest.mark.parametrize("shape", [["n", 3, 4, 5], ["n", 6], ["n", 3, 4]])
def test_statistics_of_each_place(shape: list[int | str]) -> None:
    """BatchNormalization without ``spatial``, as MXNet and CNTK had it up to opset 8."""
    inner = [int(extent) for extent in shape[1:]]
    weights = {name: random(*inner) for name in ("s", "b", "m")}
    weights["v"] = np.abs(random(*inner)) + np.float32(0.5)
    node = helper.make_node("BatchNormalization", ["a", "s", "b", "m", "v"], ["y"], spatial=0)
    nodes = [helper.make_node("Exp", ["x"], ["a"]), node]
    model = onnx_model(nodes, {"x": shape}, ["y"], weights, opset=7)
    inputs = {"x": random(3, *inner)}
    rep = backend.prepare(model, min_bytes=0)
    (found,) = rep.run(inputs)
    assert rep.report.left == () and len(rep.report.regions) == 1
    assert_agrees({"y": found}, onnxruntime_outputs(model, inputs))


def test_scatter_with_an_open_batch() -> None:
    """ScatterElements has this name up to opset 10."""
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Scatter", ["a", "i", "u"], ["s"], axis=1),
        helper.make_node("Neg", ["s"], ["y"]),
    ]
    model = onnx_model(nodes, {"x": ["n", 9], "u": ["n", 4]}, ["y"], opset=9)
    places = helper.make_tensor_value_info("i", TensorProto.INT64, ["n", 4])
    model.graph.input.insert(1, places)
    rep = backend.prepare(model, min_bytes=0)
    for rows in (3, 1):
        draw = np.random.default_rng(rows)
        i = np.stack([draw.permutation(9)[:4] for _ in range(rows)])
        inputs = {"x": random(rows, 9), "i": i, "u": random(rows, 4)}
        (found,) = rep.run(inputs)
        assert rep.report.left == () and len(rep.report.regions) == 1
        assert_agrees({"y": found}, onnxruntime_outputs(model, inputs))


@pytest.mark.filterwarnings("ignore::byoc.AxesNote")
def test_output_shape_of_transposed_convolutions_of_an_open_batch(tmp_path: Path) -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    node.attribute.append(helper.make_attribute("output_shape", [14, 13]))
    weights = {"w": random(4, 6, 3, 3)}
    model = onnx_model([node], {"x": ["n", 4, 7, 6]}, ["y"], weights, opset=8)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert made.report.left == () and len(made.report.regions) == 1
    with byoc.load(made.path) as loaded:
        for rows in (2, 1):
            inputs = {"x": random(rows, 4, 7, 6)}
            assert_agrees(loaded.run(inputs), onnxruntime_outputs(model, inputs))
