"""Convolutions of images without channels, and scatters that store nothing.

What is right is plain: ONNX Runtime refuses such images, or does not come back.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import byoc

BIAS = np.array([1.5, -2.0], np.float32)


@pytest.mark.parametrize("batch", [2, "n"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_the_bias_alone_is_left(tmp_path: Path, operator: str, rank: int, batch: int | str) -> None:
    sides = (3, 2, 4)[:rank]
    taps = (2,) * rank
    weight = np.zeros((2, 0, *taps) if operator == "Conv" else (0, 2, *taps), np.float32)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("Slice", ["x", "from", "to", "axis"], ["none"]),
            helper.make_node(operator, ["none", "w", "b"], ["y"], pads=[1] * 2 * rank),
        ],
        "nothing",
        [info("x", TensorProto.FLOAT, [batch, 3, *sides])],
        [info("y", TensorProto.FLOAT, None)],
        [
            *(numpy_helper.from_array(np.array([k]), n) for n, k in (("from", 3), ("to", 3))),
            numpy_helper.from_array(np.array([1]), "axis"),
            numpy_helper.from_array(weight, "w"),
            numpy_helper.from_array(BIAS, "b"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert not made.report.left
    x = np.ones((2, 3, *sides), np.float32)
    with byoc.load(made.path) as library:
        y = library(x=x)
    sides = [side + 1 if operator == "Conv" else side - 1 for side in sides]
    assert y.shape == (2, 2, *sides) and y.dtype == np.float32
    assert (y == BIAS.reshape(2, *[1] * rank)).all()


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize("operator", ["ScatterND", "ScatterElements"])
def test_a_tensor_into_which_nothing_is_stored(
    tmp_path: Path, operator: str, reduction: str
) -> None:
    places = np.zeros((0, 1 if operator == "ScatterND" else 2), np.int64)
    updates = np.zeros((0, 2), np.float32)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "places", "updates"], ["y"], reduction=reduction)],
        "nothing",
        [info("x", TensorProto.FLOAT, [3, 2])],
        [info("y", TensorProto.FLOAT, [3, 2])],
        [
            numpy_helper.from_array(places, "places"),
            numpy_helper.from_array(updates, "updates"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert not made.report.left
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    with byoc.load(made.path) as library:
        np.testing.assert_array_equal(library(x=x), x)
