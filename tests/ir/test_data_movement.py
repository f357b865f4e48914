"""What a region copies: each image is moved once at most, and results overwrite what has died."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import byoc
from byoc.frontends.onnx import import_onnx, prepare
from codegen_cc import plan_functions
from codegen_cc.plan.builder import Plan
from codegen_cc.plan.plan_cost import cost_of
from tests.ir.test_concat_in_place import CHANNELS, Network
from tests.reference import assert_agrees, onnxruntime_outputs


class Images(Network):
    """ONNX nodes over images [1, 24, 9, 10], with what moves pixels and channels."""

    def constant(self, name: str, values: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def depthwise(self, x: str, y: str, channels: int) -> str:
        weight = self.random.standard_normal((channels, 1, 3, 3), dtype=np.float32)
        self.constant(f"{y}_w", weight)
        self.add("Conv", [x, f"{y}_w"], [y], pads=[1] * 4, group=channels)
        return y

    def shuffle(self, x: str, y: str, groups: int, channels: int) -> str:
        split = np.array([1, groups, channels // groups, 9, 10])
        self.add("Reshape", [x, self.constant(f"{y}_5", split)], [f"{y}_s"])
        self.add("Transpose", [f"{y}_s"], [f"{y}_t"], perm=[0, 2, 1, 3, 4])
        whole = self.constant(f"{y}_4", np.array([1, channels, 9, 10]))
        self.add("Reshape", [f"{y}_t", whole], [y])
        return y

    def enlarge(self, x: str, y: str) -> str:
        scales = self.constant(f"{y}_scales", np.array([1, 1, 2, 2], np.float32))
        modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        self.add("Resize", [x, "", scales], [y], mode="nearest", **modes)
        return y

    def transposed(self, x: str, y: str, inputs: int, outputs: int) -> str:
        weight = self.random.standard_normal((inputs, outputs, 2, 2), dtype=np.float32) / inputs
        self.constant(f"{y}_w", weight.astype(np.float32))
        self.add("ConvTranspose", [x, f"{y}_w"], [y], strides=[2, 2])
        return y

    def normalise(self, x: str, y: str, channels: int) -> str:
        """Per-channel scale and shift that nothing can take up, and ReLU."""
        names = [
            self.constant(f"{y}_{i}", self.random.uniform(0.5, 1.5, channels).astype(np.float32))
            for i in range(4)
        ]
        self.add("BatchNormalization", [x, *names], [f"{y}_n"])
        self.add("Relu", [f"{y}_n"], [y])
        return y


def channel_shuffle() -> onnx.ModelProto:
    """ShuffleNet."""
    net = Images()
    net.conv("x", "a", CHANNELS, 24)
    net.depthwise(net.shuffle("a", "b", 3, 24), "c", 24)
    net.conv("c", "y", 24, 8)
    return net.model("y")


def shuffle_twice() -> onnx.ModelProto:
    """The reshape of a reshape: one copy does for both."""
    net = Images()
    net.conv("x", "a", CHANNELS, 24)
    net.shuffle("a", "b", 4, 24)
    split = net.constant("split", np.array([2, 12, 9, 10]))
    net.add("Reshape", ["b", split], ["c"])
    net.conv("c", "y", 12, 8)
    return net.model("y")


def shuffled_and_squared() -> onnx.ModelProto:
    """Both operands are the same image, which has yet to be moved."""
    net = Images()
    net.conv("x", "a", CHANNELS, 24)
    net.shuffle("a", "b", 2, 24)
    net.add("Mul", ["b", "b"], ["c"])
    net.conv("c", "y", 24, 8)
    return net.model("y")


def enlarged_and_added() -> onnx.ModelProto:
    """A feature pyramid: the enlarged image is never stored."""
    net = Images()
    net.conv("x", "a", CHANNELS, 24)
    net.add("MaxPool", ["a"], ["small"], kernel_shape=[1, 2], strides=[9, 2])
    net.enlarge(net.conv("small", "d", 24, 16), "e")
    net.transposed("small", "f", 24, 16)
    net.add("Add", ["e", "f"], ["g"])
    net.conv("g", "y", 16, 8)
    return net.model("y")


def enlarged_and_joined() -> onnx.ModelProto:
    """YOLO: an image is enlarged into the place that it has in a concatenation."""
    net = Images()
    net.conv("x", "a", CHANNELS, 24)
    net.enlarge("a", "b")
    net.enlarge(net.conv("a", "c", 24, 16), "d")
    net.add("Sigmoid", ["d"], ["e"])
    net.add("Concat", ["b", "e"], ["f"], axis=1)
    net.conv("f", "y", 40, 8)
    return net.model("y")


def pixels_from_channels() -> onnx.ModelProto:
    """A transposed convolution whose taps do not overlap."""
    net = Images()
    net.conv("x", "a", CHANNELS, 24)
    net.add("Relu", [net.transposed("a", "b", 24, 12)], ["c"])
    net.conv("c", "y", 12, 8, 3)
    return net.model("y")


def input_is_added() -> onnx.ModelProto:
    """One copy of the input serves the convolution and the sum."""
    net = Images()
    net.conv("x", "a", CHANNELS, 24)
    net.add("Mul", ["a", "x"], ["b"])
    net.conv("b", "y", 24, 8)
    return net.model("y")


def constant_image() -> onnx.ModelProto:
    """A constant of the image's shape is stored in the image's order."""
    net = Images()
    image = net.random.standard_normal((1, 24, 9, 10), dtype=np.float32)
    net.conv("x", "a", CHANNELS, 24)
    net.add("Mul", ["a", net.constant("k", image)], ["b"])
    net.conv("b", "y", 24, 8)
    return net.model("y")


def growing() -> onnx.ModelProto:
    """DenseNet as torch writes it: x0, then x0 a1, then x0 a1 a2, each scaled and shifted."""
    net = Images()
    parts, channels = [net.conv("x", "x0", CHANNELS, 16)], 16
    for i in range(1, 4):
        if len(parts) > 1:
            net.add("Concat", parts, [f"j{i}"], axis=1)
        joined = f"j{i}" if len(parts) > 1 else parts[0]
        net.normalise(joined, f"n{i}", channels)
        parts.append(net.conv(f"n{i}", f"a{i}", channels, 8, 3))
        channels += 8
    net.add("Concat", parts, ["j"], axis=1)
    net.normalise("j", "n", channels)
    net.conv("n", "y", channels, 8)
    return net.model("y")


def vgg_like() -> onnx.ModelProto:
    """Convolutions, pools and a classifier: the only copy is the input's."""
    net = Images()
    net.add("Relu", [net.conv("x", "a", CHANNELS, 16, 3)], ["b"])
    net.add("Relu", [net.conv("b", "c", 16, 16, 3)], ["d"])
    net.add("MaxPool", ["d"], ["e"], kernel_shape=[9, 10])
    net.add("Flatten", ["e"], ["f"])
    weight = net.random.standard_normal((16, 10), dtype=np.float32)
    net.add("MatMul", ["f", net.constant("w", weight)], ["y"])
    return net.model("y")


def resnet_like() -> onnx.ModelProto:
    """Two blocks with a sum, the second one wider."""
    net = Images()
    net.add("Relu", [net.conv("x", "a", CHANNELS, 16, 3)], ["b"])
    net.add("Add", [net.conv("b", "c", 16, 16, 3), "b"], ["d"])
    net.add("Relu", ["d"], ["e"])
    net.add("Add", [net.conv("e", "f", 16, 32, 3), net.conv("e", "g", 16, 32)], ["h"])
    net.add("Relu", ["h"], ["i"])
    net.add("GlobalAveragePool", ["i"], ["j"])
    net.add("Flatten", ["j"], ["k"])
    weight = net.random.standard_normal((32, 10), dtype=np.float32)
    net.add("MatMul", ["k", net.constant("w", weight)], ["y"])
    return net.model("y")


#: Network, and the copies between its input's and its output's.
CASES: dict[str, tuple[Callable[[], onnx.ModelProto], int]] = {
    "channel_shuffle": (channel_shuffle, 1),
    "shuffle_twice": (shuffle_twice, 1),
    "shuffled_and_squared": (shuffled_and_squared, 1),
    "enlarged_and_added": (enlarged_and_added, 1),  # of the transposed convolution's pixels
    "enlarged_and_joined": (enlarged_and_joined, 2),  # parts: the enlarged image, the sigmoid
    "pixels_from_channels": (pixels_from_channels, 1),
    "input_is_added": (input_is_added, 0),
    "constant_image": (constant_image, 0),
    "growing": (growing, 0),
    "vgg_like": (vgg_like, 0),
    "resnet_like": (resnet_like, 0),
}


def plan_of(model: onnx.ModelProto) -> Plan:
    """The plan of the only region."""
    module = byoc.partition_for_ext(import_onnx(prepare(model)))
    regions = [func for func in module.functions.values() if func.attrs and "Codegen" in func.attrs]
    (plan,) = plan_functions(regions)
    return plan


def copies(plan: Plan) -> tuple[list[str], list[str]]:
    """The copies of inputs, and those between inputs and outputs."""
    found = [call for call in plan.calls if call.function == "ext_copy"]
    entering = [call for call in found if call.arguments[1].buffer.kind == "input"]
    leaving = [call for call in found if call.writes[0].buffer.kind == "output"]
    inside = [call for call in found if call not in entering + leaving]
    return [call.comment for call in entering], [call.comment for call in inside]


@pytest.mark.parametrize("name", CASES)
def test_images_are_moved_once(name: str, tmp_path: Path) -> None:
    build, expected = CASES[name]
    model = build()
    plan = plan_of(model)
    entering, inside = copies(plan)
    assert len(entering) == 1, entering
    assert len(inside) == expected, inside
    compiled = byoc.compile(model, tmp_path / "m.so")
    assert len(compiled.report.regions) == 1 and not compiled.report.left
    inputs = {"x": np.random.default_rng(1).standard_normal((1, 24, 9, 10), dtype=np.float32)}
    assert_agrees(byoc.load(tmp_path / "m.so").run(inputs), onnxruntime_outputs(model, inputs))


def test_an_enlarged_image_is_read_from_the_small_one() -> None:
    plan = plan_of(enlarged_and_added())
    (addition,) = [call for call in plan.calls if call.function == "ext_binary"]
    struct, first, second, _ = addition.arguments
    assert struct.fields["shape"] == [2, 5, 2, 16]  # a row of five pixels, twice each way
    assert struct.fields["a_strides"] == [0, 16, 0, 1]
    assert (first.buffer.size, second.buffer.size) == (5 * 16, 4 * 5 * 16)


def test_the_compiler_reports_what_was_planned() -> None:
    model = channel_shuffle()
    (region,) = byoc.compile(model).report.regions
    plan = plan_of(model)
    assert region.plan == cost_of(plan)
    assert (region.plan.copies, region.plan.copies_inside) == (3, 1)
    assert region.plan.arena_bytes == plan.arena_bytes > 0
