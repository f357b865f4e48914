"""The dynamic form: quantised by the values' own range, products of integers, floats again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.quantization import QuantType, quantize_dynamic
from tvm import relax

import byoc
import byoc.frontends.onnx.backend as backend
from byoc.compiler.partition import partition_with_report
from byoc.frontends.onnx import prepare
from tests.quantised.float_networks import bert_like, resnet_like
from tests.quantised.nodes import (
    Draw,
    One,
    assert_alike,
    by_reference,
    check,
    onnxruntime_of,
    reals,
)

#: Products of integers that stay such have no kernel.
pytestmark = pytest.mark.filterwarnings("ignore::byoc.OffloadWarning")

MICROSOFT = "com.microsoft"
f32 = np.float32


def by_formula(x: np.ndarray) -> list[np.ndarray]:
    """DynamicQuantizeLinear in float32, as its text says; scale 1 for zeros (ONNX Runtime)."""
    high, low = np.maximum(x.max(), f32(0)), np.minimum(x.min(), f32(0))
    scale = f32(1) if high == low else (high - low) / f32(255)
    zero = np.rint(np.clip(f32(0) - low / scale, 0, 255))
    y = np.clip(np.rint(x / scale) + zero, 0, 255)
    return [y.astype(np.uint8), np.asarray(scale, f32), np.asarray(zero, np.uint8)]


def test_dynamic_quantize_linear() -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((4, 50)).astype(f32)
    values = [x, np.abs(x), -np.abs(x), 0 * x, x + 9, x[:, :1], 1e-30 * x, x.reshape(2, 2, 5, 10)]
    check([One("DynamicQuantizeLinear", v, [], by_formula(v)) for v in values])


@pytest.mark.parametrize("shape", [(4, 50), (2, 3, 5, 7), (1,), (300, 301)])
def test_one_kernel_finds_the_range_and_quantises(shape: tuple[int, ...]) -> None:
    """All three results are read by other nodes, on each side of the integers' last one."""
    node = helper.make_node
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        node("Cast", ["zero"], ["floats"], to=1),
        node("Add", ["scale", "floats"], ["numbers"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["real"]),
        node("Sub", ["real", "scale"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", 1, shape)
    outputs = map(helper.make_empty_tensor_value_info, ("y", "numbers"))
    model = helper.make_model(
        helper.make_graph(nodes, "range", [x], list(outputs)),
        opset_imports=[helper.make_opsetid("", 19)],
        ir_version=8,
    )
    compiled = backend.prepare(model, min_bytes=0)
    report = compiled.report
    assert len(report.regions) == 1 and report.left == ()
    kernels = {use.algorithm: use.nodes for use in report.kernels}
    assert kernels.pop("dynamic_quantize") == 1
    assert set(kernels) == {"cast", "binary", "dequantize"}
    values = Draw(10).random.standard_normal(shape).astype(f32)
    for given in (values, abs(values), -abs(values), 0 * values):
        q, scale, zero = by_formula(given)
        found = compiled.run([given])
        assert_alike(found[0], (q.astype(f32) - f32(zero)) * scale - scale)
        assert_alike(found[1], scale + f32(zero))


@pytest.mark.parametrize("read", [(), ("scale",), ("zero", "q"), ("scale", "zero", "q"), ("Min",)])
def test_results_that_are_outputs_too(read: tuple[str, ...]) -> None:
    """One kernel gives them all; what it has inside it does not give."""
    node = helper.make_node
    nodes = [
        node("ReduceMin", ["x"], ["Min"], keepdims=0),
        node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", 1, (4, 5))
    outputs = map(helper.make_empty_tensor_value_info, ("y", *read))
    model = helper.make_model(
        helper.make_graph(nodes, "range", [x], list(outputs)),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    compiled = backend.prepare(model, min_bytes=0)
    assert compiled.report.left == ()
    assert "dynamic_quantize" in {use.algorithm for use in compiled.report.kernels}
    given = Draw(11).random.standard_normal((4, 5)).astype(f32)
    q, scale, zero = by_formula(given)
    values = {"q": q, "scale": scale, "zero": zero, "Min": given.min()}
    found = compiled.run([given])
    assert_alike(found[0], (q.astype(f32) - f32(zero)) * scale)
    for name, got in zip(read, found[1:], strict=True):
        assert_alike(got, values[name])


@pytest.mark.parametrize("read", [("q",), ("scale",), ("zero",), ("q", "zero")])
def test_results_that_nobody_reads(read: tuple[str, ...]) -> None:
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"])]
    x = helper.make_tensor_value_info("x", 1, (4, 5))
    outputs = map(helper.make_empty_tensor_value_info, read)
    model = helper.make_model(
        helper.make_graph(nodes, "range", [x], list(outputs)),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    compiled = backend.prepare(model, min_bytes=0)
    assert compiled.report.left == ()
    given = Draw(13).random.standard_normal((4, 5)).astype(f32)
    values = dict(zip(("q", "scale", "zero"), by_formula(given), strict=True))
    for name, got in zip(read, compiled.run([given]), strict=True):
        assert_alike(got, values[name])


def test_pieces_that_are_read() -> None:
    """The least number is an output as well, so that the pieces stay apart."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 5), "float32"))
    op, zero = relax.op, relax.const(0.0, "float32")
    with builder.function("main", [x]):
        with builder.dataflow():
            low = builder.emit(op.minimum(op.min(x), zero))
            high = builder.emit(op.maximum(op.max(x), zero))
            width = op.divide(op.subtract(high, low), relax.const(255.0, "float32"))
            one = relax.const(1.0, "float32")
            scale = builder.emit(op.where(op.equal(high, low), one, width))
            point = op.clip(op.subtract(zero, op.divide(low, scale)), 0.0, 255.0)
            point = builder.emit(op.astype(op.round(point), "uint8"))
            q = builder.emit(op.quantize(x, scale, point, axis=0, out_dtype="uint8"))
            out = builder.emit_output(relax.Tuple([q, low]))
        builder.emit_func_output(out)
    mod, report = partition_with_report(builder.get(), min_bytes=0)
    kernels = {use.algorithm for use in report.kernels}
    assert report.left == () and "quantize" in kernels and "dynamic_quantize" not in kernels
    given = Draw(12).random.standard_normal((4, 5)).astype(f32)
    executable = tvm.compile(relax.transform.RunCodegen()(mod), "llvm")
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(given))
    assert_alike(found[0].numpy(), by_formula(given)[0])
    assert_alike(found[1].numpy(), given.min())


def test_mat_mul_integer() -> None:
    """Exact over the whole range, where ONNX Runtime saturates."""
    draw, ones = Draw(1), []
    for a, b in ((np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)):
        data, weight = draw.bytes(2, 5, 700, dtype=a), draw.bytes(700, 9, dtype=b)
        zeros = draw.bytes(9, dtype=b)
        for constants, wanted in (
            ([weight], reals(data, 1) @ reals(weight, 1)),
            ([weight, a(100), b(7)], reals(data, 1, 100) @ reals(weight, 1, 7)),
            ([weight, a([100]), zeros], reals(data, 1, 100) @ reals(weight, 1, zeros, -1)),
        ):
            wanted = wanted.astype(np.int32)
            ones.append(One("MatMulInteger", data, constants, [wanted], exact=False))
    check(ones)


def conv_integer(draw: Draw, x, w, x_zero=None, w_zero=None, dtype=np.int8, **attributes) -> One:
    data, weight = draw.bytes(*x), draw.bytes(*w, dtype=dtype)
    numbers = [None if zero is None else zero for zero in (x_zero, w_zero)]
    inputs = [reals(data, 1, x_zero or 0), reals(weight, 1, 0 if w_zero is None else w_zero)]
    wanted = by_reference("Conv", *inputs, **attributes).astype(np.int32)
    return One("ConvInteger", data, [weight, *numbers], [wanted], attributes, exact=False)


@pytest.mark.slow
def test_conv_integer() -> None:
    draw = Draw(2)
    u8, s8 = np.uint8, np.int8
    zeros = draw.bytes(6, dtype=s8)
    image, weight = (1, 4, 7, 8), (6, 4, 3, 3)
    check(
        [
            conv_integer(draw, image, weight, u8(3), pads=[1, 1, 1, 1]),
            conv_integer(draw, image, weight, u8(200), zeros, strides=[2, 2], dilations=[2, 1]),
            conv_integer(draw, image, weight, None, u8(9), u8),
            conv_integer(draw, image, (8, 1, 3, 3), u8(9), s8(-4), group=4),
            conv_integer(draw, image, weight, u8(9), auto_pad="SAME_UPPER", strides=[2, 2]),
            conv_integer(draw, (2, 4, 11), (5, 4, 3), u8(9), pads=[1, 0]),
            conv_integer(draw, (1, 3, 4, 5, 6), (4, 3, 2, 2, 2), u8(9)),
        ],
        left=["relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d"],
    )


def test_products_to_floats() -> None:
    draw = Draw(3)
    weight, bias = draw.bytes(20, 7, dtype=np.int8, most=63), np.arange(7).astype(f32)
    scales, zeros = draw.scales(7), draw.bytes(7, dtype=np.int8, most=20)
    data, floats = draw.bytes(2, 5, 20), draw.random.standard_normal((2, 5, 20)).astype(f32)
    ones = []
    for scale, zero, b in (
        (scales, zeros, bias),
        (f32(0.01), np.int8(3), None),
        (scales, None, None),
    ):
        right = reals(weight, scale, 0 if zero is None else zero, -1)
        after = 0 if b is None else b
        product = (reals(data, f32(0.1), 90) @ right + after).astype(f32)
        constants = [weight, f32(0.1), scale, np.uint8(90), zero, b]
        ones.append(One("MatMulIntegerToFloat", data, constants, [product], {}, MICROSOFT))
        product = (reals(*by_formula(floats)) @ right + after).astype(f32)
        constants = [weight, scale, zero, b]
        ones.append(One("DynamicQuantizeMatMul", floats, constants, [product], {}, MICROSOFT))
    check(ones)


# ---------------------------------------------------------------------- written as floats


def product_of(
    draw: Draw, kind: str = "MatMulInteger", opset: int = 19, per_channel=True, order=0, to=1
) -> onnx.ModelProto:
    """What quantize_dynamic writes for a product."""
    image = kind == "ConvInteger"
    shape = (6, 4, 3, 3) if image else (20, 7)
    weight = draw.bytes(*shape, dtype=np.int8, most=63)
    count = ((6,) if image else (7,)) if per_channel else ()
    scale = draw.scales(count[0]) if per_channel else f32(0.013)
    stored = {"w": weight, "w_zero": draw.bytes(*count, dtype=np.int8, most=9)}
    stored["w_scale"] = scale.reshape(-1, 1, 1) if image and per_channel else scale
    node = helper.make_node
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["x_int", "x_scale", "x_zero"]),
        node("Mul", ["x_scale", "w_scale"][:: 1 - 2 * order], ["scales"]),
        node(kind, ["x_int", "w", "x_zero", "w_zero"], ["sums"], "product"),
        node("Cast", ["sums"], ["floats"], to=to),
        node("Mul", ["floats", "scales"][:: 1 - 2 * order], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", 1, (2, 4, 9, 9) if image else (2, 5, 20))
    y = helper.make_empty_tensor_value_info("y")
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in stored.items()]
    graph = helper.make_graph(nodes, "product", [x], [y], tensors)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in prepare(model).graph.node]


KINDS = ["MatMulInteger", "ConvInteger"]


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_scaled_product_is_one_of_floats(kind: str, per_channel: bool, order: int) -> None:
    model = product_of(Draw(4), kind, per_channel=per_channel, order=order)
    prepared = prepare(model)
    product = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}[kind]
    assert [node.op_type for node in prepared.graph.node] == [
        "DynamicQuantizeLinear",
        "DequantizeLinear",
        "DequantizeLinear",
        product,
    ]
    assert {node.name for node in prepared.graph.node[1:]} == {"product"}
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = Draw(5).random.standard_normal(shape).astype(f32)
    # ConvInteger with a zero point for each channel is beyond ONNX Runtime.
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    (found,) = ReferenceEvaluator(prepared).run(None, {"x": x})
    assert_alike(found, wanted)
    compiled = backend.prepare(model, min_bytes=0)
    assert compiled.report.offloaded_macs == compiled.report.macs > 0
    assert len(compiled.report.regions) == 1 and compiled.report.left == ()
    assert list(compiled.report.multiplied_in) == ["uint8"]
    assert_alike(compiled.run([x])[0], wanted)


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("opset", [11, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_scales_of_channels_before_dequantise_linear_had_an_axis(
    kind: str, opset: int, far: bool
) -> None:
    """``far``: a weight of uint8 that int8 does not hold, whose product two others make up."""
    draw = Draw(14)
    model = product_of(draw, kind, opset)
    if far:
        for tensor in model.graph.initializer[:2]:
            stored = numpy_helper.to_array(tensor)
            moved = draw.bytes(*stored.shape, most=None if stored.ndim > 1 else 9)
            tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = draw.random.standard_normal(shape).astype(f32)
    compiled = backend.prepare(model, min_bytes=0)
    assert compiled.report.offloaded_macs == compiled.report.macs > 0
    assert len(compiled.report.regions) == 1 and compiled.report.left == ()
    assert "uint8" in compiled.report.multiplied_in
    (found,) = compiled.run([x])
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert_alike(found, wanted)
    if kind == "MatMulInteger":  # ConvInteger with many zero points is beyond ONNX Runtime
        assert_alike(found, onnxruntime_of(model, x)[0])


@pytest.mark.parametrize("shape", [(2, 5, 20), (10, 20)])
def test_rows_that_are_reshaped_stay_integers(shape: tuple[int, ...]) -> None:
    """Others may read the floats besides."""
    model = product_of(Draw(8))
    graph = model.graph
    for place, node in enumerate(graph.node):
        if node.op_type == "MatMulInteger":
            node.input[0] = "rows"
            extents = numpy_helper.from_array(np.array(shape, np.int64), "extents")
            graph.initializer.append(extents)
            graph.node.insert(place, helper.make_node("Reshape", ["x_int", "extents"], ["rows"]))
            break
    x = Draw(9).random.standard_normal((2, 5, 20)).astype(f32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    compiled = backend.prepare(model, min_bytes=0)
    assert list(compiled.report.multiplied_in) == ["uint8"]
    assert_alike(compiled.run([x])[0], wanted)


def test_products_that_stay_integers() -> None:
    """Sums that somebody else reads, and scales that are another's."""
    integer = "MatMulInteger"
    assert integer not in operators(product_of(Draw(6)))
    assert integer in operators(product_of(Draw(6), to=onnx.TensorProto.DOUBLE))
    for name in ("sums", "floats"):
        model = product_of(Draw(6))
        model.graph.output.append(helper.make_empty_tensor_value_info(name))
        assert integer in operators(model)
    model = product_of(Draw(6))
    model.graph.node[1].input[0] = "other"
    model.graph.input.append(helper.make_tensor_value_info("other", 1, ()))
    assert integer in operators(model)
    model = product_of(Draw(6))
    model.graph.initializer[2].CopyFrom(numpy_helper.from_array(f32([[1]] * 5), "w_scale"))
    assert integer in operators(model)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("network", [resnet_like, bert_like])
def test_networks(network, per_channel: bool, tmp_path: Path) -> None:
    plain, path = tmp_path / "float.onnx", tmp_path / "quantised.onnx"
    onnx.save(network(), plain)
    kind = QuantType.QUInt8 if network is resnet_like else QuantType.QInt8
    quantize_dynamic(plain, path, per_channel=per_channel, weight_type=kind, reduce_range=True)
    model = onnx.load(path)
    assert {node.op_type for node in model.graph.node} & {"MatMulInteger", "ConvInteger"}
    compiled = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert compiled.report.offloaded_macs == compiled.report.macs > 0
    assert len(compiled.report.regions) == 1 and compiled.report.left == ()
    kernels = {use.algorithm for use in compiled.report.kernels}
    assert "dynamic_quantize" in kernels and "quantize" not in kernels
    (value,) = model.graph.input
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    x = Draw(7).random.standard_normal(shape).astype(f32)
    (found,) = byoc.load(tmp_path / "m.so").run({value.name: x}).values()
    (wanted,) = onnxruntime_of(model, x)
    # The last bits of a float may put an integer after it one step further.
    assert np.abs(found - wanted).max() <= 0.005 * np.ptp(wanted)
