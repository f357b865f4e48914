"""Values that bf16 networks store in bfloat16: which calls there are then, and who stops it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from byoc.accuracy import share_of_range
from byoc.frontends.onnx import import_onnx, prepare
from codegen_cc import plan_functions
from codegen_cc.plan.builder import Plan
from models.builder import GraphBuilder
from tests.reference import onnxruntime_outputs

CHANNELS = 24
SHAPE = (2, CHANNELS, 10, 12)
#: Of bfloat16's eight bits of mantissa, after some layers.
LIMIT = 2e-2


class Graph(GraphBuilder):
    """ONNX nodes on x [2, 24, 10, 12], and the model that they make up."""

    def __init__(self) -> None:
        super().__init__("storage", seed=3)

    def point(self, x: str, inputs: int = CHANNELS) -> str:
        return self.op("Relu", self.conv(x, (inputs, CHANNELS), 1))

    def deep(self, x: str, stride: int = 1) -> str:
        return self.conv(x, (CHANNELS, CHANNELS), 3, stride=stride, groups=CHANNELS)

    def model(self, *results: str) -> onnx.ModelProto:
        self.input("x", SHAPE)
        for index, result in enumerate(results):
            self.output(result, f"y{index}", ("n", f"c{index}", f"h{index}", f"w{index}"))
        return onnx.shape_inference.infer_shapes(self.build())


def plan_of(model: onnx.ModelProto, *precision: str) -> Plan:
    mod = import_onnx(prepare(model))
    mod = byoc.partition_for_ext(mod, min_bytes=0, precision=precision or ("bf16",))
    regions = [f for f in mod.functions.values() if f.attrs and "Codegen" in f.attrs]
    assert len(regions) == 1
    return plan_functions(regions)[0]


def stored(plan: Plan, function: str) -> list[str]:
    """The dtypes of the results of a function's calls."""
    return [call.writes[0].dtype for call in plan.calls if call.function == function]


def depthwise(graph: Graph) -> str:
    x = graph.relu6(graph.deep(graph.point("x")))
    return graph.point(graph.op("Sigmoid", graph.deep(x, stride=2)))


def groups(graph: Graph) -> str:
    x = graph.conv(graph.point("x"), (CHANNELS, CHANNELS), 3, groups=CHANNELS // 4)
    return graph.point(graph.op("Relu", x))


def pools_and_sums(graph: Graph) -> str:
    x = graph.point("x")
    y = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    z = graph.op("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    # Each sum has two readers: none becomes part of a convolution.
    total = graph.op("Add", y, z)
    return graph.op("Concat", graph.point(total), graph.point(total), axis=1)


def joined(graph: Graph) -> str:
    x = graph.point("x")
    whole = graph.op("Concat", x, graph.point(x), graph.point(x), axis=1)
    return graph.point(whole, 3 * CHANNELS)


def gate(graph: Graph) -> str:
    x = graph.deep(graph.point("x"))
    scale = graph.op("Sigmoid", graph.conv(graph.op("GlobalAveragePool", x), (24, 24), 1))
    scaled = graph.op("Mul", x, scale)
    return graph.op("Concat", graph.point(scaled), graph.point(scaled), axis=1)


def upsampled(graph: Graph) -> str:
    sizes = graph.constant(np.float32([1, 1, 2, 2]))
    small = graph.op("MaxPool", graph.point("x"), kernel_shape=[2, 2], strides=[2, 2])
    large = graph.op("Resize", graph.point(small), "", sizes, mode="nearest",
                     coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    total = graph.op("Add", graph.point("x"), large)
    return graph.op("Concat", graph.point(total), graph.point(total), axis=1)


def attention(graph: Graph) -> str:
    """Four heads over the pixels, each side a product of its own, and a projection behind them."""
    rows = graph.op("Transpose", graph.reshape("x", (2, CHANNELS, -1)), perm=[0, 2, 1])
    query, key, value = (
        graph.op(
            "Transpose",
            graph.reshape(graph.linear(rows, (CHANNELS, CHANNELS)), (2, -1, 4, CHANNELS // 4)),
            perm=perm,
        )
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scale = graph.constant(np.float32(0.4))
    scores = graph.op("Mul", graph.op("MatMul", query, key), scale)
    mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
    mixed = graph.reshape(graph.op("Transpose", mixed, perm=[0, 2, 1, 3]), (2, -1, CHANNELS))
    return graph.reshape(graph.linear(mixed, (CHANNELS, CHANNELS)), (2, 10, 12, CHANNELS))


def normalised(graph: Graph) -> str:
    """Rows of float32 numbers, whose normalised ones a product reads in another order."""
    rows = graph.op("Transpose", graph.reshape("x", (2, CHANNELS, -1)), perm=[0, 2, 1])
    normal = graph.layer_norm(graph.op("Sigmoid", rows), CHANNELS)
    turned = graph.op("Transpose", graph.reshape(normal, (2, 10, 12, CHANNELS)), perm=[0, 2, 1, 3])
    return graph.linear(turned, (CHANNELS, CHANNELS))


NARROW, WIDE = "bfloat16", "float32"
#: What is written, and the dtypes of what some functions give.
KEPT = {
    "depthwise": (depthwise, {"ext_depthwise_conv2d_bf16": [NARROW] * 2}),
    "groups": (groups, {"ext_grouped_conv2d_bf16": [NARROW]}),
    "pools, sums": (
        pools_and_sums,
        {
            "ext_max_pool2d_bf16": [NARROW],
            "ext_avg_pool2d_bf16": [NARROW],
            "ext_binary_bf16": [NARROW],
        },
    ),
    "concatenation": (joined, {"ext_conv2d_bf16": [*[NARROW] * 3, WIDE]}),
    "gate": (
        gate,
        {
            "ext_depthwise_conv2d_bf16": [NARROW],
            "ext_reduce_bf16": [WIDE],
            "ext_binary_bf16": [NARROW],
        },
    ),
    "attention": (
        attention,
        {"ext_matmul_bf16": [*[NARROW] * 3, WIDE], "ext_attention_bf16": [NARROW]},
    ),
    "normalised": (normalised, {"ext_layer_norm_bf16": [NARROW], "ext_matmul_bf16": [WIDE]}),
    "upsampled": (upsampled, {"ext_max_pool2d_bf16": [NARROW], "ext_copy": [WIDE, NARROW, WIDE]}),
}


@pytest.mark.parametrize("name", KEPT)
def test_values_between_products_are_stored_in_bfloat16(name: str, tmp_path: Path) -> None:
    write, functions = KEPT[name]
    graph = Graph()
    model = graph.model(write(graph))
    plan = plan_of(model)
    assert {function: stored(plan, function) for function in functions} == functions
    compiled = byoc.compile(model, tmp_path / "m.so", precision="bf16")
    assert len(compiled.report.regions) == 1 and compiled.report.left == ()
    x = np.random.default_rng(1).standard_normal(SHAPE, dtype=np.float32)
    (found,) = byoc.load(tmp_path / "m.so").run({"x": x}).values()
    (expected,) = onnxruntime_outputs(model, {"x": x}).values()
    assert 1e-5 < share_of_range(found, expected) < LIMIT


def a_function_of_float32(graph: Graph) -> tuple[str, ...]:
    x = graph.point("x")
    return graph.point(graph.deep(x)), graph.point(graph.op("Softmax", x, axis=1))


def a_result(graph: Graph) -> tuple[str, ...]:
    x = graph.point("x")
    return graph.point(graph.deep(x)), x


def a_part_of_float32(graph: Graph) -> tuple[str, ...]:
    x = graph.point("x")
    y = graph.op("Softmax", graph.point("x"), axis=1)
    whole = graph.op("Concat", x, y, axis=1)
    return graph.point(whole, 2 * CHANNELS), graph.point(graph.deep(x))


@pytest.mark.parametrize("write", [a_function_of_float32, a_result, a_part_of_float32])
def test_one_who_touches_float32_keeps_it_for_all(write: object) -> None:
    graph = Graph()
    plan = plan_of(graph.model(*write(graph)))  # type: ignore[operator]
    assert stored(plan, "ext_depthwise_conv2d") == [WIDE]
    assert stored(plan, "ext_depthwise_conv2d_bf16") == []


def test_a_node_that_is_kept_in_float32_reads_and_gives_it() -> None:
    graph = Graph()
    deep = graph.deep(graph.point("x"))
    model = graph.model(graph.point(deep))
    assert stored(plan_of(model), "ext_depthwise_conv2d_bf16") == [NARROW]
    plan = plan_of(model, "bf16", f"{deep}=fp32")
    assert stored(plan, "ext_depthwise_conv2d") == [WIDE]
    assert stored(plan, "ext_conv2d_bf16") == [WIDE, WIDE]


def test_a_prologue_of_bfloat16(tmp_path: Path) -> None:
    """A batch norm between convolutions is computed while the second one reads its image."""
    graph = Graph()
    x = graph.point("x")
    normed = graph.op("Relu", graph.batch_norm(x, CHANNELS))
    model = graph.model(graph.op("Concat", graph.conv(normed, (24, 20), 1), x, axis=1))
    plan = plan_of(model)
    assert len(stored(plan, "ext_conv2d_bf16_prologue")) == 1
    assert "ext_binary" not in {call.function for call in plan.calls}
    byoc.compile(model, tmp_path / "m.so", precision="bf16")
    values = np.random.default_rng(2).standard_normal(SHAPE, dtype=np.float32)
    (found,) = byoc.load(tmp_path / "m.so").run({"x": values}).values()
    (expected,) = onnxruntime_outputs(model, {"x": values}).values()
    assert 1e-5 < share_of_range(found, expected) < LIMIT
    assert stored(plan_of(model, "fp32"), "ext_conv2d_prologue") == [WIDE]


def test_an_image_that_windows_read_again_is_rounded_once() -> None:
    graph = Graph()
    plan = plan_of(graph.model(graph.conv("x", (CHANNELS, 40), 3, stride=2)))
    assert [call.function for call in plan.calls if call.function != "ext_copy"] == [
        "ext_cast",
        "ext_conv2d_bf16",
    ]


def test_winograd_reads_and_gives_bfloat16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes in float32 between products in bfloat16, with a residual."""
    monkeypatch.setenv("BYOC_COMPILE_ISA", "avx512_bf16")
    graph, shape = Graph(), (1, CHANNELS, 80, 80)
    x = graph.op("Relu", graph.conv("x", (CHANNELS, 64), 1))
    y = graph.op("Relu", graph.op("Add", graph.conv(x, (64, 64), 3), x))
    z = graph.conv(y, (64, 64), 3)
    graph.input("x", shape)
    graph.output(graph.conv(z, (64, CHANNELS), 1), "y", ("n", "c", "h", "w"))
    model = onnx.shape_inference.infer_shapes(graph.build())
    plan = plan_of(model)
    assert stored(plan, "ext_conv2d_winograd_bf16") == [NARROW, NARROW]
    assert stored(plan, "ext_conv2d_bf16") == [NARROW, WIDE]
    assert stored(plan, "ext_cast") == []
    compiled = byoc.compile(model, tmp_path / "m.so", precision="bf16")
    assert len(compiled.report.regions) == 1 and compiled.report.left == ()
    values = np.random.default_rng(4).standard_normal(shape, dtype=np.float32)
    (found,) = byoc.load(tmp_path / "m.so").run({"x": values}).values()
    (expected,) = onnxruntime_outputs(model, {"x": values}).values()
    assert 1e-5 < share_of_range(found, expected) < LIMIT


def test_winograd_of_a_result_gives_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_COMPILE_ISA", "avx512_bf16")
    graph = Graph()
    graph.input("x", (1, CHANNELS, 112, 112))
    graph.output(graph.conv(graph.point("x"), (CHANNELS, 96), 3), "y", ("n", "c", "h", "w"))
    plan = plan_of(onnx.shape_inference.infer_shapes(graph.build()))
    assert stored(plan, "ext_conv2d_bf16") == [NARROW]
    assert stored(plan, "ext_conv2d_winograd_bf16") == [WIDE]


def test_a_region_that_multiplies_nothing_in_bfloat16_rounds_nothing(tmp_path: Path) -> None:
    """``verify`` takes fp32's limit there, as nothing that was asked for is computed."""
    graph = Graph()
    pool = graph.op("MaxPool", "x", kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    mean = graph.op("AveragePool", pool, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    model = graph.model(graph.op("Mul", graph.op("Add", pool, mean), mean))
    plan = plan_of(model)
    assert {call.writes[0].dtype for call in plan.calls} == {"float32"}
    file = tmp_path / "m.so"
    report = byoc.compile(model, file, min_bytes=0, precision="bf16").report
    assert report.left == () and len(report.regions) == 1
    assert byoc.verify(model, file).holds
