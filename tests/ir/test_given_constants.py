"""Constant and ConstantOfShape whose values are a network's outputs, as PyTorch exports them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

import byoc.frontends.onnx.backend as backend
from tests.ir.graphs import onnx_model, random
from tests.reference import assert_agrees, onnxruntime_outputs


def _check(model: onnx.ModelProto) -> None:
    inputs = {"x": random(2, 3)}
    rep = backend.prepare(model, min_bytes=0)
    results = rep.run(inputs)
    assert rep.report.left == () and len(rep.report.regions) == 1
    found = dict(zip(results._fields, results, strict=True))
    assert_agrees(found, onnxruntime_outputs(model, inputs))


def test_numbers_without_extents() -> None:
    """``zeros_like(x.sum())`` fills a shape of no extents."""
    value = numpy_helper.from_array(np.array([2.5], "float32"))
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Shape", ["sum"], ["none"]),
        helper.make_node("ConstantOfShape", ["none"], ["filled"], value=value),
        helper.make_node("ConstantOfShape", ["none"], ["zero"]),
        helper.make_node("Add", ["sum", "filled"], ["y"]),
    ]
    model = onnx_model(nodes, {"x": [2, 3]}, ["y", "filled", "zero"], opset=17)
    _check(model)


def test_numbers_and_lists_of_numbers() -> None:
    """``x.max(0)`` of a number gives its place, 0, as a Constant."""
    told = {
        "int": {"value_int": 0},
        "ints": {"value_ints": [3, 4]},
        "float": {"value_float": 0.5},
        "floats": {"value_floats": [0.5]},
    }
    nodes = [helper.make_node("Constant", [], [name], **given) for name, given in told.items()]
    nodes.append(helper.make_node("Relu", ["x"], ["y"]))
    model = onnx_model(nodes, {"x": [2, 3]}, ["y", *told], opset=17)
    _check(model)
