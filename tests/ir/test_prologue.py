"""Elementwise work before 1 x 1 convolutions: done while they read their input, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import byoc
from byoc.frontends.onnx import import_onnx, prepare
from codegen_cc import plan_functions
from codegen_cc.plan.builder import Plan
from models.builder import GraphBuilder
from tests.reference import assert_agrees, onnxruntime_outputs

CHANNELS, OUTPUTS, IMAGES = 21, 18, 2
SHAPE = (IMAGES, CHANNELS, 6, 7)


class Graph(GraphBuilder):
    """ONNX nodes on x [2, 21, 6, 7], and the models that they make up."""

    def __init__(self) -> None:
        super().__init__("prologue", seed=5)

    def draw(self, *shape: int) -> str:
        return self.constant(self._random.uniform(0.5, 1.5, shape).astype(np.float32))

    def last(self, x: str, kernel: int = 1, inputs: int = CHANNELS, stride: int = 1) -> str:
        return self.conv(x, (inputs, OUTPUTS), kernel, stride=stride)

    def normalised(self, x: str) -> str:
        return self.op("Relu", self.batch_norm(self.op("Abs", x), CHANNELS))

    def gate(self, x: str) -> str:
        """Squeeze and excite: sigmoid(conv(mean(x))), one number for each image and channel."""
        mean = self.op("GlobalAveragePool", x)
        return self.op("Sigmoid", self.conv(mean, (CHANNELS, CHANNELS), 1, bias=False))

    def model(self, *results: str, images: int | str = IMAGES) -> onnx.ModelProto:
        self.input("x", (images, *SHAPE[1:]))
        for index, result in enumerate(results):
            self.output(result, f"y{index}", (images, f"c{index}", f"h{index}", f"w{index}"))
        return onnx.shape_inference.infer_shapes(self.build())


def batch_norm_relu(graph: Graph) -> str:
    return graph.last(graph.normalised("x"))


def scale_alone(graph: Graph) -> str:
    scaled = graph.op("Mul", graph.op("Abs", "x"), graph.draw(CHANNELS, 1, 1))
    return graph.last(graph.op("Sigmoid", scaled))


def gate(graph: Graph) -> str:
    x = graph.op("Abs", "x")
    return graph.last(graph.op("Mul", x, graph.gate(x)))


def activation_alone(graph: Graph) -> str:
    x = graph.op("Concat", graph.last("x"), graph.last("x"), axis=1)
    return graph.last(graph.op("HardSwish", x), inputs=2 * OUTPUTS)


#: What is written, and the prologue in the comment of the call.
TAKEN = {
    "batch norm, relu": (batch_norm_relu, "scale shift relu"),
    "scale, sigmoid": (scale_alone, "scale sigmoid"),
    "gate": (gate, "scale"),
    "activation": (activation_alone, "hard_swish"),
}


def plan_of(model: onnx.ModelProto, **options: Any) -> Plan:
    mod = byoc.partition_for_ext(import_onnx(prepare(model)), min_bytes=0, **options)
    regions = [f for f in mod.functions.values() if f.attrs and "Codegen" in f.attrs]
    assert len(regions) == 1
    return plan_functions(regions)[0]


def kernels(plan: Plan) -> list[str]:
    return [call.function for call in plan.calls]


def check(model: onnx.ModelProto, folder: Path, images: int = IMAGES) -> None:
    x = np.random.default_rng(1).standard_normal((images, *SHAPE[1:]), dtype=np.float32)
    shapes = {"x": ["n", *SHAPE[1:]]} if images != IMAGES else None
    compiled = byoc.compile(model, folder / "m.so", shapes)
    assert len(compiled.report.regions) == 1
    assert_agrees(byoc.load(folder / "m.so").run({"x": x}), onnxruntime_outputs(model, {"x": x}))


@pytest.mark.parametrize("name", TAKEN)
def test_the_kernel_does_it(name: str, tmp_path: Path) -> None:
    write, expected = TAKEN[name]
    graph = Graph()
    model = graph.model(write(graph))
    plan = plan_of(model)
    assert kernels(plan).count("ext_conv2d_prologue") == 1
    assert not {"ext_binary"} & set(kernels(plan))
    comments = [call.comment for call in plan.calls if call.function == "ext_conv2d_prologue"]
    assert f"; {expected} of the input first" in comments[0]
    check(model, tmp_path)


def test_each_image_has_its_own_gate_where_their_number_is_a_symbol(tmp_path: Path) -> None:
    graph = Graph()
    check(graph.model(gate(graph), images="n"), tmp_path, images=3)


def shift_before_scale(graph: Graph) -> str:
    """(x + t) s relu is no scale and shift; only what comes after the sum is taken up."""
    shifted = graph.op("Add", graph.gate("x"), "x")
    return graph.last(graph.op("Relu", graph.op("Mul", shifted, graph.draw(CHANNELS, 1, 1))))


def two_readers(graph: Graph) -> str:
    x = graph.normalised("x")
    return graph.op("Mul", graph.last(x), graph.last(x))


def a_window(graph: Graph) -> str:
    x = graph.normalised("x")
    return graph.last(x, kernel=3)


def a_stride(graph: Graph) -> str:
    x = graph.normalised("x")
    return graph.last(x, stride=2)


def a_residual(graph: Graph) -> str:
    return graph.last(graph.op("Mul", graph.op("Abs", "x"), graph.op("Neg", "x")))


@pytest.mark.parametrize("write", [two_readers, a_window, a_stride, a_residual])
def test_what_is_no_prologue_stays_a_pass(write: object, tmp_path: Path) -> None:
    graph = Graph()
    model = graph.model(write(graph))
    assert "ext_conv2d_prologue" not in kernels(plan_of(model))
    check(model, tmp_path)


def test_a_shift_before_the_scale_is_added_apart(tmp_path: Path) -> None:
    graph = Graph()
    model = graph.model(shift_before_scale(graph))
    found = kernels(plan_of(model))
    assert found.count("ext_conv2d_prologue") == 1 and found.count("ext_binary") == 1
    check(model, tmp_path)


def test_a_result_of_the_model_is_computed_all_the_same(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.normalised("x")
    model = graph.model(graph.last(x), x)
    assert "ext_conv2d_prologue" not in kernels(plan_of(model))
    check(model, tmp_path)
