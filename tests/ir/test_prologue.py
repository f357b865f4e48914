"""Elementwise work before 1 x 1 convolutions: done while they read their input, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import byoc
from byoc.prepare import import_onnx, prepare
from codegen_cc import plan_functions
from codegen_cc.plan import Plan
from tests.reference import assert_agrees, onnxruntime_outputs

CHANNELS, OUTPUTS, IMAGES = 21, 18, 2
SHAPE = (IMAGES, CHANNELS, 6, 7)


class Graph:
    """ONNX nodes on x [2, 21, 6, 7], which ends in y."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(5)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, values: np.ndarray) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    def draw(self, *shape: int) -> str:
        return self.constant(self.random.uniform(0.5, 1.5, shape))

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def conv(self, x: str, kernel: int = 1, inputs: int = CHANNELS, **attributes: object) -> str:
        weight = self.random.standard_normal((OUTPUTS, inputs, kernel, kernel)) / inputs
        return self.op("Conv", x, self.constant(weight), self.draw(OUTPUTS), **attributes)

    def batch_norm(self, x: str) -> str:
        return self.op("BatchNormalization", x, *(self.draw(CHANNELS) for _ in range(4)))

    def gate(self, x: str) -> str:
        """Squeeze and excite: sigmoid(conv(mean(x))), one number for each image and channel."""
        weight = self.constant(self.random.standard_normal((CHANNELS, CHANNELS, 1, 1)))
        return self.op("Sigmoid", self.op("Conv", self.op("GlobalAveragePool", x), weight))

    def model(self, *results: str, images: int | str = IMAGES) -> onnx.ModelProto:
        outputs = []
        for index, result in enumerate(results):
            self.nodes.append(helper.make_node("Identity", [result], [f"y{index}"], f"y{index}"))
            outputs.append(helper.make_tensor_value_info(f"y{index}", TensorProto.FLOAT, None))
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (images, *SHAPE[1:]))
        graph = helper.make_graph(self.nodes, "prologue", [x], outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        return onnx.shape_inference.infer_shapes(model)


def batch_norm_relu(graph: Graph) -> str:
    return graph.conv(graph.op("Relu", graph.batch_norm(graph.op("Abs", "x"))))


def scale_alone(graph: Graph) -> str:
    scaled = graph.op("Mul", graph.op("Abs", "x"), graph.draw(CHANNELS, 1, 1))
    return graph.conv(graph.op("Sigmoid", scaled))


def gate(graph: Graph) -> str:
    x = graph.op("Abs", "x")
    return graph.conv(graph.op("Mul", x, graph.gate(x)))


def activation_alone(graph: Graph) -> str:
    x = graph.op("Concat", graph.conv("x"), graph.conv("x"), axis=1)
    return graph.conv(graph.op("HardSwish", x), inputs=2 * OUTPUTS)


#: What is written, and the prologue in the comment of the call.
TAKEN = {
    "batch norm, relu": (batch_norm_relu, "scale shift relu"),
    "scale, sigmoid": (scale_alone, "scale sigmoid"),
    "gate": (gate, "scale"),
    "activation": (activation_alone, "hard_swish"),
}


def plan_of(model: onnx.ModelProto) -> Plan:
    mod = byoc.partition_for_ext(import_onnx(prepare(model)), min_bytes=0)
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
    return graph.conv(graph.op("Relu", graph.op("Mul", shifted, graph.draw(CHANNELS, 1, 1))))


def two_readers(graph: Graph) -> str:
    x = graph.op("Relu", graph.batch_norm(graph.op("Abs", "x")))
    return graph.op("Add", graph.conv(x), graph.conv(x))


def a_window(graph: Graph) -> str:
    x = graph.op("Relu", graph.batch_norm(graph.op("Abs", "x")))
    return graph.conv(x, kernel=3, pads=[1, 1, 1, 1])


def a_stride(graph: Graph) -> str:
    x = graph.op("Relu", graph.batch_norm(graph.op("Abs", "x")))
    return graph.conv(x, strides=[2, 2])


def a_residual(graph: Graph) -> str:
    return graph.conv(graph.op("Mul", graph.op("Abs", "x"), graph.op("Neg", "x")))


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
    x = graph.op("Relu", graph.batch_norm(graph.op("Abs", "x")))
    model = graph.model(graph.conv(x), x)
    assert "ext_conv2d_prologue" not in kernels(plan_of(model))
    check(model, tmp_path)
