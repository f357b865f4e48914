"""Concatenation in place: parts are computed where the whole lies, and nothing is copied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import byoc
from byoc.frontends.onnx import import_onnx, prepare
from codegen_cc import plan_functions
from tests.reference import assert_agrees, onnxruntime_outputs

CHANNELS = 24


class Network:
    """ONNX nodes over images [1, 24, 9, 10]."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(5)

    def conv(self, x: str, y: str, inputs: int, outputs: int, kernel: int = 1) -> str:
        shape = (outputs, inputs, kernel, kernel)
        weight = self.random.standard_normal(shape, dtype=np.float32) / np.float32(inputs)
        self.weights.append(numpy_helper.from_array(weight, f"{y}_w"))
        pads = [kernel // 2] * 4
        self.nodes.append(helper.make_node("Conv", [x, f"{y}_w"], [y], pads=pads))
        return y

    def add(self, op: str, inputs: list[str], outputs: list[str], **attrs: object) -> None:
        self.nodes.append(helper.make_node(op, inputs, outputs, **attrs))

    def model(self, *outputs: str) -> onnx.ModelProto:
        shape = [1, CHANNELS, 9, 10]
        graph = helper.make_graph(
            self.nodes,
            "join",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model)


def fire() -> onnx.ModelProto:
    """SqueezeNet: two convolutions and a pool of the same image, side by side."""
    net = Network()
    net.conv("x", "s", CHANNELS, 8)
    net.conv("s", "a", 8, 20)
    net.conv("s", "b", 8, 17, 3)
    net.add("MaxPool", ["s"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    net.add("Concat", ["a", "b", "c"], ["j"], axis=1)
    net.conv("j", "y", 45, 4)
    return net.model("y")


def dense_block() -> onnx.ModelProto:
    """DenseNet: every layer reads all that came before, and adds its own channels."""
    net = Network()
    net.conv("x", "j0", CHANNELS, 16)
    channels = 16
    for i in range(3):
        net.conv(f"j{i}", f"a{i}", channels, 8, 3)
        net.add("Concat", [f"j{i}", f"a{i}"], [f"j{i + 1}"], axis=1)
        channels += 8
    net.conv("j3", "y", channels, 4)
    return net.model("y")


def split_block() -> onnx.ModelProto:
    """YOLO: both halves of an image, and what is made of the second one, side by side."""
    net = Network()
    net.conv("x", "s", CHANNELS, 16)
    net.add("Split", ["s"], ["p", "q"], axis=1)
    net.conv("q", "r", 8, 8, 3)
    net.add("Concat", ["p", "q", "r"], ["j"], axis=1)
    net.conv("j", "y", 24, 4)
    return net.model("y")


def swapped_split() -> onnx.ModelProto:
    """The halves in the other order: they cannot both lie where the image is computed."""
    net = Network()
    net.conv("x", "s", CHANNELS, 16)
    net.add("Split", ["s"], ["p", "q"], axis=1)
    net.add("Concat", ["q", "p"], ["j"], axis=1)
    net.conv("j", "y", 16, 4)
    return net.model("y")


def part_is_output() -> onnx.ModelProto:
    """A part and the whole leave the region, too; the part is read by two concatenations."""
    net = Network()
    net.conv("x", "a", CHANNELS, 8)
    net.conv("x", "b", CHANNELS, 8)
    net.add("Concat", ["a", "b"], ["j"], axis=1)
    net.add("Concat", ["b", "a", "b"], ["k"], axis=1)
    net.conv("k", "y", 24, 4)
    return net.model("y", "a", "j")


#: Network, and how many copies its concatenations still make.
CASES = {
    "fire": (fire, 0),
    "dense_block": (dense_block, 0),
    "split_block": (split_block, 0),
    "swapped_split": (swapped_split, 2),
    "part_is_output": (part_is_output, 3),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_are_computed_in_place(name: str, tmp_path: Path) -> None:
    build, copies = CASES[name]
    model = build()
    module = byoc.partition_for_ext(import_onnx(prepare(model)))
    regions = [func for func in module.functions.values() if func.attrs and "Codegen" in func.attrs]
    (plan,) = plan_functions(regions)
    concats = [call for call in plan.calls if call.comment.startswith("ext.concat")]
    assert len(concats) == copies, [call.comment for call in concats]
    byoc.compile(model, tmp_path / "m.so")
    inputs = {"x": np.random.default_rng(1).standard_normal((1, 24, 9, 10), dtype=np.float32)}
    assert_agrees(byoc.load(tmp_path / "m.so").run(inputs), onnxruntime_outputs(model, inputs))
