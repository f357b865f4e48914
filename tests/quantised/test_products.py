"""Convolutions and products of quantised tensors: on integers, in one region, and right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from tests.quantised.networks import MIDDLE, Quantised, assert_alike, reference

#: A zero point of a tensor that is mostly above 0.
THREE = np.uint8(3)


def convolution(
    channels: int = 6,
    outputs: int = 20,
    kernel: int = 3,
    *,
    zero=MIDDLE,
    weight: dict | None = None,
    bias: bool = True,
    after: tuple = (),
    result=THREE,
    size: int = 9,
    **attributes,
) -> Callable[[], onnx.ModelProto]:
    def build() -> onnx.ModelProto:
        net = Quantised()
        x = net.there_and_back(net.input(2, channels, size, size), 0.03, zero)
        shape = (outputs, channels // attributes.get("group", 1), kernel, kernel)
        w = net.weight(*shape, **(weight or {}))
        y = net.op("Conv", x, w, *([net.bias(outputs)] if bias else []), **attributes)
        for kind in after:
            y = net.op(kind, y)
        return net.model(y if result is None else net.quantize(y, 0.04, result))

    return build


def product(transposed: bool, *, rows=(5,), depth=37, columns=19, **weight):
    def build() -> onnx.ModelProto:
        net = Quantised()
        x = net.there_and_back(net.input(*rows, depth), 0.02, np.int8(-5))
        if transposed:
            w = net.weight(columns, depth, axis=0, **weight)
            y = net.op("Gemm", x, w, net.bias(columns), transB=1)
        else:
            w = net.weight(depth, columns, **{"axis": 1, **weight})
            y = net.op("MatMul", x, w)
        return net.model(net.quantize(y, 0.05, np.int8(7)))

    return build


def line(channels: int = 6, outputs: int = 20, **more) -> Callable[[], onnx.ModelProto]:
    """Convolutions of one axis, one after the other, each as ``convolution`` has it."""
    kernel, after = more.pop("kernel", 3), more.pop("after", ())
    bias, weight = more.pop("bias", True), more.pop("weight", {})
    residual, result = more.pop("residual", False), more.pop("result", THREE)

    def build() -> onnx.ModelProto:
        net = Quantised()
        x = net.there_and_back(net.input(2, channels, 23), 0.03)
        for inputs in (channels, outputs):
            group = inputs if more.get("group") == channels else more.get("group", 1)
            w = net.weight(outputs, inputs // group, kernel, **weight)
            biases = [net.bias(outputs)] if bias else []
            y = net.op("Conv", x, w, *biases, **{**more, "group": group})
            if residual and inputs == outputs:
                y = net.op("Add", net.there_and_back(y, 0.06), x)
            for kind in after:
                y = net.op(kind, y)
            x = net.there_and_back(y, 0.05, THREE)
        return net.model(y if result is None else net.quantize(y, 0.04, result))

    return build


LINES = {
    "line": line(),
    "line_1": line(kernel=1),
    "line_per_tensor": line(weight={"axis": None}),
    "line_padded": line(pads=[2, 1], strides=[2]),
    "line_dilated": line(dilations=[3], pads=[3, 3]),
    "line_groups": line(channels=12, outputs=24, group=3),
    "line_depthwise": line(channels=20, group=20, kernel=7, pads=[3, 3]),
    "line_relu": line(after=("Relu",)),
    "line_sigmoid": line(after=("Sigmoid",)),
    "line_without_bias": line(bias=False),
    "line_to_float": line(result=None),
    "line_residual": line(pads=[1, 1], residual=True, after=("Relu",)),
    "line_uint8_weight": line(weight={"dtype": np.uint8, "zero": 128, "axis": None}),
}

PLAIN = {
    "conv": convolution(),
    "conv_1x1": convolution(kernel=1),
    "conv_1x1_strided": convolution(kernel=1, strides=[2, 2]),
    "conv_per_tensor": convolution(weight={"axis": None}),
    "conv_of_int8": convolution(zero=np.int8(4), result=np.int8(-9)),
    "conv_zero_0": convolution(zero=np.uint8(0)),
    "conv_zero_255": convolution(zero=np.uint8(255), pads=[1, 1, 1, 1]),
    "conv_padded": convolution(pads=[1, 2, 0, 1], strides=[2, 1]),
    "conv_dilated": convolution(dilations=[2, 2], pads=[2, 2, 2, 2]),
    "conv_groups": convolution(channels=12, outputs=24, group=3),
    "conv_small_groups": convolution(channels=24, outputs=24, group=6, pads=[1, 1, 1, 1]),
    "conv_joined_groups": convolution(channels=12, outputs=24, group=6, pads=[1, 1, 1, 1]),
    "conv_groups_of_a_panel": convolution(channels=48, outputs=48, group=3, strides=[2, 2]),
    "conv_relu": convolution(after=("Relu",)),
    "conv_sigmoid": convolution(after=("Sigmoid",), result=np.uint8(0)),
    "conv_without_bias": convolution(bias=False),
    "conv_to_float": convolution(result=None),
    "conv_relu_to_float": convolution(after=("Relu",), result=None),
    "conv_uint8_weight": convolution(weight={"dtype": np.uint8, "zero": 128, "axis": None}),
    "conv_one_channel": convolution(channels=1, outputs=3, kernel=5),
    "depthwise": convolution(channels=20, outputs=20, group=20, pads=[1, 1, 1, 1]),
    "depthwise_strided": convolution(channels=33, outputs=33, group=33, strides=[2, 2], kernel=5),
    "matmul": product(False),
    "matmul_of_batches": product(False, rows=(2, 3, 4)),
    "matmul_per_tensor": product(False, axis=None),
    "matmul_one_row": product(False, rows=(1,), depth=300, columns=130),
    "gemm": product(True),
}


def run(model: onnx.ModelProto, folder: Path, seed: int = 1, **options):
    compiled = byoc.compile(model, folder / "m.so", min_bytes=0, **options)
    draw = np.random.default_rng(seed)
    inputs = {
        value.name: 4
        * draw.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim])
        for value in model.graph.input
    }
    inputs = {name: array.astype(np.float32) for name, array in inputs.items()}
    found = list(byoc.load(folder / "m.so").run(inputs).values())
    for got, want in zip(found, reference(model, inputs), strict=True):
        assert_alike(got, want)
    return compiled


def algorithms(compiled: byoc.Compiled) -> list[str]:
    return [use.algorithm for use in compiled.report.kernels]


@pytest.mark.parametrize("build", PLAIN.values(), ids=PLAIN.keys())
def test_products_on_integers(build, tmp_path: Path) -> None:
    compiled = run(build(), tmp_path)
    report = compiled.report
    assert report.left == () and len(report.regions) == 1
    assert [name for name in algorithms(compiled) if name.endswith("int8")]
    assert report.offloaded_macs == report.macs > 0


@pytest.mark.parametrize("build", LINES.values(), ids=LINES.keys())
def test_lines_on_integers(build, tmp_path: Path) -> None:
    """Two in a row: nothing but bytes is between them, and each quantises in its kernel."""
    compiled = run(build(), tmp_path)
    report = compiled.report
    assert report.left == () and len(report.regions) == 1
    kernels = {use.algorithm: use.nodes for use in report.kernels}
    assert sum(nodes for name, nodes in kernels.items() if name.endswith("int8")) == 2
    assert list(report.multiplied_in) == ["uint8"]
    assert report.offloaded_macs == report.macs > 0
    assert kernels.pop("quantize", 0) <= 1


def test_two_products_read_one_tensor(tmp_path: Path) -> None:
    net = Quantised()
    x = net.there_and_back(net.input(1, 8, 7, 7), 0.03)
    one = net.op("Conv", x, net.weight(8, 8, 1, 1), net.bias(8))
    two = net.op("Conv", x, net.weight(8, 8, 3, 3), net.bias(8), pads=[1] * 4)
    a, b = (net.there_and_back(y, 0.05) for y in (one, two))
    model = net.model(net.quantize(net.op("Add", a, b), 0.06))
    compiled = run(model, tmp_path)
    assert len(compiled.report.regions) == 1 and compiled.report.left == ()
    (use,) = [use for use in compiled.report.kernels if use.algorithm == "GEMM, int8"]
    assert use.nodes == 2


def test_weights_are_stored_as_integers(tmp_path: Path) -> None:
    build = product(False, depth=512, columns=512)
    run(build(), tmp_path)
    size = (tmp_path / "m.so").stat().st_size
    plain = byoc.compile(product(False, depth=8, columns=8)(), tmp_path / "small.so", min_bytes=0)
    assert size - plain.path.stat().st_size < 1.2 * 512 * 512


def test_tables_are_stored_as_integers(tmp_path: Path) -> None:
    net = Quantised()
    table = net.weight(16384, 64, axis=None)
    ids = net.op("Cast", net.input(2, 5), to=onnx.TensorProto.INT64)
    model = net.model(net.op("Gather", table, ids))
    compiled = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert compiled.report.left == () and len(compiled.report.regions) == 1
    assert (tmp_path / "m.so").stat().st_size < 3 * 16384 * 64
    inputs = {"x0": np.arange(10, dtype=np.float32).reshape(2, 5) * 1638}
    (found,) = byoc.load(tmp_path / "m.so").run(inputs).values()
    assert_alike(found, reference(model, inputs)[0])


@pytest.mark.parametrize(
    "build",
    [
        convolution(weight={"dtype": np.uint8, "zero": 7, "axis": None}),
        convolution(weight={"zero": -100, "axis": None}),
    ],
    ids=["uint8", "int8"],
)
def test_weights_whose_difference_is_too_wide_become_floats(build, tmp_path: Path) -> None:
    compiled = run(build(), tmp_path)
    assert compiled.report.offloaded_macs == compiled.report.macs > 0
    assert not [name for name in algorithms(compiled) if name.endswith("int8")]


def test_what_is_skipped_is_right_as_well(tmp_path: Path) -> None:
    compiled = run(convolution()(), tmp_path, skip_ops=["relax.nn.conv2d"])
    assert "relax.nn.conv2d" in {entry.op for entry in compiled.report.left}


def test_a_symbolic_batch(tmp_path: Path) -> None:
    net = Quantised()
    x = net.there_and_back(net.input("n", 8, 7, 7), 0.03)
    y = net.op("Conv", x, net.weight(16, 8, 3, 3), net.bias(16), pads=[1] * 4)
    model = net.model(net.quantize(y, 0.05))
    shapes = {"x0": ["n", 8, 7, 7]}
    report = byoc.compile(model, tmp_path / "m.so", shapes, min_bytes=0).report
    assert len(report.regions) == 1 and report.left == ()
    loaded = byoc.load(tmp_path / "m.so")
    for count in (0, 1, 3):
        x = np.random.default_rng(count).standard_normal((count, 8, 7, 7)).astype(np.float32)
        (found,) = loaded.run({"x0": 3 * x}).values()
        assert_alike(found, reference(model, {"x0": 3 * x})[0])
