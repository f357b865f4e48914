"""RoiAlign and MaxRoiPool against ONNX Runtime, of fixed and of open sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import byoc
from tests.reference import assert_agrees, onnxruntime_outputs

FORMS = {
    "half": {"coordinate_transformation_mode": "half_pixel", "sampling_ratio": 2},
    "whole": {"coordinate_transformation_mode": "output_half_pixel", "spatial_scale": 0.25},
    "as_many": {"spatial_scale": 0.25, "output_height": 3, "output_width": 5},
}


def network(image: list[int | str], regions: int | str) -> onnx.ModelProto:
    """Every form of one image and its regions, behind and before other operators."""
    nodes = [helper.make_node("Relu", ["x"], ["image"])]
    for name, attributes in FORMS.items():
        nodes.append(helper.make_node("RoiAlign", ["image", "r", "of"], [name], **attributes))
        nodes.append(helper.make_node("Neg", [name], [f"y_{name}"]))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "pooled",
        [
            info("x", TensorProto.FLOAT, image),
            info("r", TensorProto.FLOAT, [regions, 4]),
            info("of", TensorProto.INT64, [regions]),
        ],
        [info(f"y_{name}", TensorProto.FLOAT, None) for name in FORMS],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)


@pytest.mark.parametrize("sizes", ["open", "fixed"])
def test_all_forms_are_one_region(tmp_path: Path, sizes: str) -> None:
    open_sizes = sizes == "open"
    model = network(
        ["n", 20, "h", "w"] if open_sizes else [2, 20, 14, 18], "r" if open_sizes else 6
    )
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    rng = np.random.default_rng(2)
    with byoc.load(made.path) as library:
        for n, h, w, regions in [(2, 14, 18, 6), *([(1, 40, 9, 1), (1, 5, 5, 0)] * open_sizes)]:
            corner = rng.uniform(-6, 30, (regions, 2))
            sides = np.concatenate([corner, corner + rng.uniform(0, 50, (regions, 2))], 1)
            inputs = {
                "x": rng.standard_normal((n, 20, h, w)).astype(np.float32),
                "r": sides.astype(np.float32),
                "of": rng.integers(0, n, regions),
            }
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


def test_an_image_that_is_not_there(tmp_path: Path) -> None:
    byoc.compile(network([2, 20, 14, 18], 1), tmp_path / "m.so", min_bytes=0)
    inputs = {"x": np.zeros((2, 20, 14, 18), np.float32), "r": np.ones((1, 4), np.float32)}
    with byoc.load(tmp_path / "m.so") as library, pytest.raises(byoc.RunError, match="index"):
        library.run({**inputs, "of": np.array([2])})


@pytest.mark.parametrize("sizes", ["open", "fixed"])
def test_greatest_of_regions(tmp_path: Path, sizes: str) -> None:
    image, count = ([2, 20, 14, 18], 6) if sizes == "fixed" else (["n", 20, "h", "w"], "r")
    info = helper.make_tensor_value_info
    attributes = {"pooled_shape": [3, 4], "spatial_scale": 0.25}
    graph = helper.make_graph(
        [helper.make_node("MaxRoiPool", ["x", "r"], ["y"], **attributes)],
        "pooled",
        [info("x", TensorProto.FLOAT, image), info("r", TensorProto.FLOAT, [count, 5])],
        [info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    made = byoc.compile(model, tmp_path / "m.so")
    assert len(made.report.regions) == 1 and not made.report.left
    rng = np.random.default_rng(2)
    with byoc.load(made.path) as library:
        others = [(1, 40, 9, 9), (1, 1, 1, 2)] * (sizes == "open")
        for n, h, w, regions in [(2, 14, 18, 6), *others]:
            corner = rng.uniform(-6, 60, (regions, 2))
            sides = np.concatenate([corner, corner + rng.uniform(-5, 60, (regions, 2))], 1)
            of = rng.integers(0, n, (regions, 1))
            inputs = {
                "x": rng.standard_normal((n, 20, h, w)).astype(np.float32),
                "r": np.concatenate([of, sides], 1).astype(np.float32),
            }
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))
