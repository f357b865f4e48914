"""Attributes that have a kind and no value: lists of nothing, and a 0 that the writer left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import byoc.frontends.onnx.backend as backend
from byoc.errors import UnsupportedForm
from byoc.frontends.onnx import import_onnx, prepare
from tests.ir.graphs import onnx_model, random
from tests.reference import assert_agrees, onnxruntime_outputs

KIND = onnx.AttributeProto


def bare(operator: str, inputs: list[str], name: str, kind: int, **given: Any) -> onnx.NodeProto:
    node = helper.make_node(operator, inputs, [f"{operator}_{name}"], **given)
    node.attribute.add(name=name, type=kind)
    return node


def test_agree_with_onnxruntime() -> None:
    """PyTorch's exporter writes no axes for ``x.amax()``; protobuf 3 leaves out each 0."""
    reductions = ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum", "ReduceL2")
    nodes = [
        *(bare(operator, ["x"], "axes", KIND.INTS, keepdims=0) for operator in reductions),
        bare("Softmax", ["x"], "axis", KIND.INT),
        bare("Concat", ["x", "x"], "axis", KIND.INT),
        bare("ReduceMax", ["x"], "keepdims", KIND.INT),
        bare("LeakyRelu", ["x"], "alpha", KIND.FLOAT),
    ]
    outputs = [node.output[0] for node in nodes]
    model = onnx_model(nodes, {"x": [2, 3]}, outputs, opset=12)
    inputs = {"x": random(2, 3)}
    rep = backend.prepare(model, min_bytes=0)
    results = rep.run(inputs)
    assert rep.report.left == () and len(rep.report.regions) == 1
    found = dict(zip(outputs, results, strict=True))
    want = onnxruntime_outputs(model, inputs)
    root = {"ReduceL2_axes": want.pop("ReduceL2_axes")}
    assert_agrees({name: found[name] for name in want}, want)
    assert_agrees({name: found[name] for name in root}, root, rounding=5e-7)
    np.testing.assert_array_equal(found["LeakyRelu_alpha"], np.maximum(inputs["x"], 0))


def test_squeeze_of_no_axes_is_refused() -> None:
    """ONNX infers that nothing is squeezed, and ONNX Runtime squeezes all axes of one element."""
    node = bare("Squeeze", ["x"], "axes", KIND.INTS)
    model = onnx_model([node], {"x": [2, 1, 3]}, ["Squeeze_axes"], opset=12)
    with pytest.raises(UnsupportedForm, match=r"Squeeze .* gives shape \[2, 3\]"):
        import_onnx(prepare(model))
