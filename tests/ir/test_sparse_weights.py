"""Weights that a file stores by their elements other than 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import byoc
from byoc.errors import ModelError
from byoc.frontends.onnx import prepare
from tests.ir.graphs import onnx_model, random
from tests.reference import assert_agrees, onnxruntime_outputs


def sparse(name: str, array: np.ndarray, by_axes: bool = False) -> onnx.SparseTensorProto:
    """``by_axes``: places have a number for each axis, else one for all."""
    places = np.argwhere(array) if by_axes else np.flatnonzero(array)
    values = numpy_helper.from_array(array[array != 0], name)
    indices = numpy_helper.from_array(places.astype(np.int64), f"{name}_places")
    return helper.make_sparse_tensor(values, indices, array.shape)


def pruned(*shape: int) -> np.ndarray:
    array = random(*shape)
    array[np.abs(array) < np.median(np.abs(array))] = 0
    return array


def network(weights: list[onnx.SparseTensorProto]) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["z"]),
        helper.make_node("Add", ["z", "nothing"], ["y"]),
    ]
    model = onnx_model(nodes, {"x": ["n", 3, "h", "w_"]}, ["y"])
    model.graph.sparse_initializer.extend(weights)
    return model


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.filterwarnings("ignore::byoc.AxesNote")
def test_agree_with_onnxruntime(in_file: bool, tmp_path: Path) -> None:
    """ONNX Runtime takes places by axes of matrices alone."""
    arrays = {"w": pruned(40, 3, 3, 3), "m": pruned(40, 5), "nothing": np.zeros(5, np.float32)}
    model = network([sparse(name, array, name == "m") for name, array in arrays.items()])
    before = model.SerializeToString(deterministic=True)
    given: Path | onnx.ModelProto = model
    if in_file:
        given = tmp_path / "m.onnx"
        onnx.save(model, given)
    made = byoc.compile(given, tmp_path / "m.so", min_bytes=0)
    assert made.report.left == () and len(made.report.regions) == 1
    inputs = {"x": random(2, 3, 9, 10)}
    with byoc.load(made.path) as loaded:
        assert_agrees(loaded.run(inputs), onnxruntime_outputs(model, inputs))
    assert model.SerializeToString(deterministic=True) == before


def test_sparse_constants(tmp_path: Path) -> None:
    """A node that gives such a weight, as a file may have it in place of a list."""
    weight = helper.make_node("Constant", [], ["w"], sparse_value=sparse("", pruned(40, 5)))
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = onnx_model([weight, product], {"x": ["n", 40]}, ["y"])
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert made.report.left == () and len(made.report.regions) == 1
    inputs = {"x": random(3, 40)}
    with byoc.load(made.path) as loaded:
        assert_agrees(loaded.run(inputs), onnxruntime_outputs(model, inputs))


@pytest.mark.parametrize(
    ("places", "dims", "says"),
    [
        ([0, 6], [2, 3], r"'w': a place lies outside of \[2, 3\]"),
        ([-1, 0], [2, 3], "outside"),
        ([[0, 0], [1, 3]], [2, 3], "outside"),
        ([[0, 0, 0], [1, 1, 0]], [2, 3], "need one for each"),
        ([0, 1], [1 << 20, 1 << 20], "more than 2 GiB"),
    ],
)
def test_places_that_do_not_fit_are_refused(places: list, dims: list[int], says: str) -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = numpy_helper.from_array(np.array(places, np.int64), "places")
    weight = onnx.SparseTensorProto(values=values, indices=indices, dims=dims)
    model = onnx_model([helper.make_node("Relu", ["w"], ["y"])], {}, ["y"])
    model.graph.sparse_initializer.append(weight)
    with pytest.raises(ModelError, match=says):
        prepare(model)
