"""Volumes that are resized, as planes and then along the depth, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, helper
from onnx.reference import ReferenceEvaluator

import byoc
from tests.ir.graphs import onnx_model
from tests.reference import assert_agrees, onnxruntime_outputs

SHAPE = (2, 3, 4, 5, 6)

#: Attributes of Resize.
FORMS = {
    "linear": {"mode": "linear"},
    "linear, corners": {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    "linear, asymmetric": {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
    "nearest": {"mode": "nearest"},
    "nearest, floor": {
        "mode": "nearest",
        "nearest_mode": "floor",
        "coordinate_transformation_mode": "asymmetric",
    },
    "cubic": {"mode": "cubic"},
}
SCALES = {"all": (2, 3, 2), "depth": (3, 1, 1), "planes": (1, 2, 2), "smaller": (0.5, 1, 2)}


def _model(form: str, scales: str, shape: list[int | str]) -> ModelProto:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Resize", ["a", "", "scales"], ["r"], **FORMS[form]),
        helper.make_node("Sigmoid", ["r"], ["y"]),
    ]
    constants = {"scales": np.array([1, 1, *SCALES[scales]], np.float32)}
    return onnx_model(nodes, {"x": shape}, ["y"], constants)


def _wanted(form: str, model: ModelProto, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Of ONNX's reference where ONNX Runtime has no such form of volumes."""
    if form != "cubic":
        return onnxruntime_outputs(model, arrays)
    return {"y": ReferenceEvaluator(model).run(None, arrays)[0]}


@pytest.mark.parametrize("size", ["fixed", "open"])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("form", FORMS)
def test_resize(form: str, scales: str, size: str, tmp_path: Path) -> None:
    sides = ["2*d" if scales == "smaller" else "d", "h", "w"]
    model = _model(form, scales, ["n", 3, *sides] if size == "open" else list(SHAPE))
    done = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert done.report.left == () and len(done.report.regions) == 1
    with byoc.load(tmp_path / "m.so") as library:
        for shape in (SHAPE, (1, 3, 6, 3, 7)) if size == "open" else (SHAPE,):
            arrays = {"x": np.random.default_rng(7).standard_normal(shape).astype(np.float32)}
            assert_agrees(library.run(arrays), _wanted(form, model, arrays))


@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_coordinates_that_move_what_keeps_its_size(rounding: str, tmp_path: Path) -> None:
    """ONNX Runtime leaves such axes as they are."""
    model = _model("nearest", "depth", list(SHAPE))
    (resize,) = (node for node in model.graph.node if node.op_type == "Resize")
    how = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": rounding}
    resize.attribute.extend(helper.make_attribute(name, value) for name, value in how.items())
    done = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert done.report.offloaded
    arrays = {"x": np.random.default_rng(7).standard_normal(SHAPE).astype(np.float32)}
    with byoc.load(tmp_path / "m.so") as library:
        assert_agrees(library.run(arrays), onnxruntime_outputs(model, arrays))
