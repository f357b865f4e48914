"""Images resized by scales that the caller gives, as in matting of videos, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import byoc
from tests.ir.graphs import onnx_model, random
from tests.reference import assert_agrees, onnxruntime_outputs

LINEAR = {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}
NEAREST = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
SCALES = helper.make_node("Concat", ["ones", "r", "r"], ["scales"], axis=0)
WEIGHTS = {"ones": np.ones(2, np.float32), "w": random(4, 3, 3, 3), "v": random(4, 8, 3, 3)}


def scaled(image: np.ndarray, ratio: float, **more: np.ndarray) -> dict[str, np.ndarray]:
    return {"x": image, "r": np.array([ratio], np.float32), **more}


def check(
    model: onnx.ModelProto, folder: Path, calls: list[dict[str, np.ndarray]]
) -> byoc.Compiled:
    """Of the network all but the resize by computed scales is a region."""
    made = byoc.compile(model, folder / "m.so", min_bytes=0)
    assert {part.name for part in made.report.left} == {"resize"}
    with byoc.load(made.path) as library:
        for inputs in calls:
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))
    return made


@pytest.mark.parametrize(
    ("opset", "options"), [(13, LINEAR), (13, NEAREST), (10, {"mode": "linear"}), (10, {})]
)
@pytest.mark.parametrize("shape", [["b", 3, "h", "w_"], [2, 3, 20, 31]])
@pytest.mark.filterwarnings("ignore::byoc.AxesNote")
def test_open_ratios(opset: int, options: dict, shape: list, tmp_path: Path) -> None:
    """Sizes are floor(ratio size), and positions are of the ratio itself: 31 becomes 15."""
    given = ["x", "scales"] if opset < 11 else ["x", "", "scales"]
    nodes = [
        SCALES,
        helper.make_node("Resize", given, ["s"], "resize", **options),
        helper.make_node("Conv", ["s", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    model = onnx_model(nodes, {"x": shape, "r": [1]}, ["y"], WEIGHTS, opset)
    images = [random(2, 3, 20, 31)]
    if isinstance(shape[0], str):
        images += [random(1, 3, 17, 9), random(1, 3, 33, 16)]
    calls = [scaled(image, ratio) for image in images for ratio in (0.5, 0.25, 1.7)]
    made = check(model, tmp_path, calls)
    axes = next(iter(made.metadata.inputs)).shape
    assert list(axes) == shape


@pytest.mark.filterwarnings("ignore::byoc.AxesNote")
def test_ratios_in_float16(tmp_path: Path) -> None:
    """As converters to float16 leave them: scales are float32 all the same."""
    half = onnx.TensorProto.FLOAT16
    nodes = [
        helper.make_node("Cast", ["r"], ["ratio"], to=half),
        helper.make_node("Concat", ["ones", "ratio", "ratio"], ["halves"], axis=0),
        helper.make_node("Cast", ["halves"], ["scales"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Resize", ["x", "", "scales"], ["s"], "resize", **LINEAR),
        helper.make_node("Conv", ["s", "w"], ["y"]),
    ]
    weights = WEIGHTS | {"ones": np.ones(2, np.float16)}
    model = onnx_model(nodes, {"x": ["b", 3, "h", "w_"], "r": [1]}, ["y"], weights, 13)
    check(model, tmp_path, [scaled(random(2, 3, 20, 31), ratio) for ratio in (0.25, 0.5)])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::byoc.AxesNote")
def test_states_of_one_pixel_or_of_the_image(tmp_path: Path) -> None:
    """The first frame's state is a zero, which is repeated; the next one's is the output."""
    nodes = [
        SCALES,
        helper.make_node("Resize", ["x", "", "scales"], ["s"], "resize", **LINEAR),
        helper.make_node("Conv", ["s", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Shape", ["c"], ["size"]),
        helper.make_node("Expand", ["state", "size"], ["all"]),
        helper.make_node("Concat", ["c", "all"], ["both"], axis=1),
        helper.make_node("Conv", ["both", "v"], ["y"], pads=[1, 1, 1, 1]),
    ]
    inputs = {"x": ["b", 3, "h", "w_"], "r": [1], "state": ["sb", "sc", "sh", "sw"]}
    model = onnx_model(nodes, inputs, ["y"], WEIGHTS, 13)
    first = scaled(random(2, 3, 32, 24), 0.5, state=random(1, 1, 1, 1))
    state = onnxruntime_outputs(model, first)["y"]
    assert state.shape == (2, 4, 8, 6)
    second = scaled(random(2, 3, 32, 24), 0.5, state=state)
    made = check(model, tmp_path, [first, second])
    with byoc.load(made.path) as library, pytest.raises(byoc.ByocError):
        library.run(scaled(random(2, 3, 32, 24), 0.5, state=random(2, 4, 8, 3)))
