"""Arithmetic on small constants is evaluated, whatever the simplifier made of it."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

from byoc.prepare.fold_onnx import MAX_ELEMENTS, fold_small_constants

from .graphs import onnx_model, random


def test_chain_is_folded() -> None:
    nodes = [
        helper.make_node("Slice", ["shape", "zero", "one"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    weights = {"shape": [2, 3, 4], "zero": [0], "one": [1], "rest": [12]}
    arrays = {name: np.array(value, "int64") for name, value in weights.items()}
    model = fold_small_constants(onnx_model(nodes, {"x": [2, 3, 4]}, ["y"], arrays))
    assert [node.op_type for node in model.graph.node] == ["Reshape"]
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    np.testing.assert_array_equal(stored["target"], [2, 12])


def test_weights_inputs_and_outputs_are_left_alone() -> None:
    nodes = [
        helper.make_node("Add", ["large", "large"], ["a"]),
        helper.make_node("Add", ["x", "small"], ["b"]),
        helper.make_node("Add", ["small", "small"], ["c"]),
    ]
    arrays = {"large": random(MAX_ELEMENTS + 1), "small": random(1)}
    model = onnx_model(nodes, {"x": [1]}, ["a", "b", "c"], arrays)
    assert len(fold_small_constants(model).graph.node) == 3


def test_an_operator_that_fails_stays() -> None:
    nodes = [
        helper.make_node("Reshape", ["values", "shape"], ["a"]),
        helper.make_node("Add", ["x", "a"], ["y"]),
    ]
    arrays = {"values": random(3), "shape": np.array([2, 2], "int64")}
    model = fold_small_constants(onnx_model(nodes, {"x": [1]}, ["y"], arrays))
    assert len(model.graph.node) == 2
