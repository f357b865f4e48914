"""The interface that ONNX defines for backends."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import byoc.frontends.onnx.backend as backend
from byoc.errors import CompileError, InputError, ShapeError
from tests.ir.graphs import onnx_model, random


def linear(batch: int | str = 2) -> onnx.ModelProto:
    """relu(x w) with a dynamic first axis if it has a name."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    return onnx_model(nodes, {"x": [batch, 8]}, ["z"], {"w": random(8, 16, seed=1)})


def test_prepare_and_run() -> None:
    rep = backend.prepare(linear())
    x = random(2, 8)
    assert rep.report.offloaded == rep.report.operators == 2
    want = np.maximum(x @ random(8, 16, seed=1), 0)
    for inputs in ([x], x, {"x": x}):
        result = rep.run(inputs)
        np.testing.assert_allclose(result.z, want, rtol=1e-5, atol=1e-6)
        assert len(result) == 1
    np.testing.assert_array_equal(backend.run_model(linear(), [x])[0], result[0])


def test_dynamic_axes_take_the_size_of_the_inputs() -> None:
    rep = backend.prepare(linear("n"))
    for batch in (2, 5, 5):
        x = random(batch, 8)
        want = np.maximum(x @ random(8, 16, seed=1), 0)
        np.testing.assert_allclose(rep.run([x])[0], want, rtol=1e-5, atol=1e-6)


def test_run_node() -> None:
    node = helper.make_node("Add", ["a", "b"], ["c"])
    a, b = random(3, 4), np.array(2.0, "float32")
    (c,) = backend.run_node(node, [a, b])
    np.testing.assert_array_equal(c, a + b)


def test_only_the_cpu() -> None:
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0")
    assert not backend.supports_device("CUDA")
    with pytest.raises(CompileError, match="runs on CPU"):
        backend.prepare(linear(), "CUDA")


def test_wrong_inputs() -> None:
    with pytest.raises(InputError, match="2 inputs given; the model has 1: x"):
        backend.prepare(linear()).run([random(2, 8)] * 2)
    with pytest.raises(ShapeError, match="rank 3"):
        backend.prepare(linear("n")).run([random(1, 2, 8)])


def test_empty_tensors_and_optional_inputs() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    assert backend.run_model(onnx_model([node], {"x": [0, 3]}, ["y"]), [random(0, 3)])[0].shape == (
        0,
        3,
    )
    model = onnx_model([helper.make_node("OptionalGetElement", ["x"], ["y"])], {"x": [4]}, ["y"])
    tensor = model.graph.input[0].type
    optional = helper.make_optional_type_proto(tensor)
    model.graph.input[0].type.CopyFrom(optional)
    x = random(4)
    np.testing.assert_array_equal(backend.run_model(model, [x])[0], x)
