"""BatchNormalization in training mode of which only the batch is read, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import byoc
from byoc import UnsupportedForm
from tests.ir.graphs import onnx_model
from tests.reference import assert_agrees

_RANDOM = np.random.default_rng(2)


def _values(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def _check(model: onnx.ModelProto, folder: Path, *shapes: tuple[int, ...]) -> byoc.Compiled:
    done = byoc.compile(model, folder / "m.so", min_bytes=0)
    assert done.report.left == () and len(done.report.regions) == 1
    session = ort.InferenceSession(model.SerializeToString())
    with byoc.load(folder / "m.so") as library:
        for shape in shapes:
            x = 3 * _values(*shape) + 1
            (want,) = session.run(None, {"x": x})
            assert_agrees(library.run({"x": x}), {"y": want})
    return done


@pytest.mark.parametrize("opset", [15, 18])
def test_weights_of_a_convolution(opset: int, tmp_path: Path) -> None:
    """As PyTorch writes those of NFNets: folded, so that the convolution alone is left."""
    statistics = ["m", "v"]
    nodes = [
        helper.make_node(
            "BatchNormalization",
            ["flat", "s", "b", *statistics],
            ["w", "unread_mean", "unread_variance"],
            training_mode=1,
            epsilon=1e-3,
        ),
        helper.make_node("Reshape", ["w", "shape"], ["weight"]),
        helper.make_node("Conv", ["x", "weight"], ["y"]),
    ]
    weights = {"flat": _values(1, 8, 27), "s": _values(8), "b": np.zeros(8, "float32")}
    weights |= {name: np.ones(8, "float32") for name in statistics}
    weights["shape"] = np.array([8, 3, 3, 3])
    model = onnx_model(nodes, {"x": ["n", 3, 12, 12]}, ["y"], weights, opset)
    done = _check(model, tmp_path, (1, 3, 12, 12), (2, 3, 12, 12))
    assert sum(use.nodes for use in done.report.kernels) == 1


@pytest.mark.parametrize("shape", [["n", 5], ["n", 5, "l"], [3, 5, 4, 6]])
def test_batches(shape: list[int | str], tmp_path: Path) -> None:
    """Of what is computed, the statistics are the batch's."""
    node = helper.make_node("BatchNormalization", [*"xsbmv"], ["y", "p", "q"], training_mode=1)
    ones = {name: np.ones(5, "float32") for name in "mv"}
    weights = {"s": _values(5), "b": _values(5), **ones}
    sizes = [(3, 5, 4, 6), (2, 5, 7, 3)][: 2 if "n" in shape else 1]
    model = onnx_model([node], {"x": shape}, ["y"], weights)
    _check(model, tmp_path, *(size[: len(shape)] for size in sizes))


@pytest.mark.parametrize("opset", [7, 9, 13])
def test_batches_of_old_networks(opset: int, tmp_path: Path) -> None:
    """What trains is told by its outputs."""
    node = helper.make_node("BatchNormalization", [*"xsbmv"], [*"ypqrt"])
    ones = {name: np.ones(5, "float32") for name in "mv"}
    weights = {"s": _values(5), "b": _values(5), **ones}
    model = onnx_model([node], {"x": ["n", 5, 4, 6]}, ["y"], weights, opset)
    _check(model, tmp_path, (3, 5, 4, 6), (2, 5, 4, 6))


def test_running_statistics_that_are_read(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("BatchNormalization", [*"xsbmv"], ["t", "p", "q"], training_mode=1),
        helper.make_node("Concat", ["p", "q"], ["y"], axis=0),
    ]
    ones = {name: np.ones(5, "float32") for name in "sbmv"}
    model = onnx_model(nodes, {"x": [2, 5, 4, 4]}, ["t", "y"], ones)
    with pytest.raises(UnsupportedForm, match="running variance"):
        byoc.compile(model, tmp_path / "m.so")
