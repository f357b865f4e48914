"""The QOperator form: each operator, and networks as onnxruntime.quantization writes them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

import byoc
import byoc.frontends.onnx.backend as backend
from byoc.frontends.onnx import prepare
from tests.quantised.float_networks import Batches, bert_like, resnet_like
from tests.quantised.nodes import (
    Draw,
    One,
    assert_alike,
    by_reference,
    check,
    integers,
    model_of,
    onnxruntime_of,
    reals,
)

MICROSOFT = "com.microsoft"
f32 = np.float32

#: Weights of 7 bits, with which ONNX Runtime does not saturate.
HALF = 63


def qlinear_conv(
    draw: Draw,
    x=(1, 4, 7, 8),
    w=(6, 4, 3, 3),
    dtypes=(np.uint8, np.int8, np.uint8),
    per_channel=False,
    zero=0,
    bias=True,
    **attributes,
) -> One:
    data = draw.bytes(*x, dtype=dtypes[0])
    weight = draw.bytes(*w, dtype=dtypes[1], most=HALF)
    count = (w[0],) if per_channel else ()
    scale = draw.scales(w[0]) if per_channel else f32(0.013)
    zeros = np.full(count, zero, dtypes[1])
    bias = draw.random.integers(-9000, 9000, w[0]).astype(np.int32) if bias else None
    x_zero, y_zero, y_scale = dtypes[0](100), dtypes[2](17), f32(0.9)
    inputs = (reals(data, f32(0.1), x_zero), reals(weight, scale, zeros))
    inputs += () if bias is None else (reals(bias, f32(0.1) * scale.astype(np.float64)),)
    wanted = integers(by_reference("Conv", *inputs, **attributes), y_scale, y_zero)
    constants = [f32(0.1), x_zero, weight, scale, zeros, y_scale, y_zero, bias]
    return One("QLinearConv", data, constants, [wanted], attributes)


def test_qlinear_conv() -> None:
    draw = Draw(0)
    s8, u8 = np.int8, np.uint8
    check(
        [
            qlinear_conv(draw, pads=[1, 1, 1, 1]),
            qlinear_conv(draw, per_channel=True, strides=[2, 1], dilations=[2, 2]),
            qlinear_conv(draw, dtypes=(s8, s8, s8), per_channel=True, bias=False),
            qlinear_conv(draw, dtypes=(u8, u8, u8), zero=31, pads=[0, 1, 2, 1]),
            qlinear_conv(draw, w=(8, 1, 3, 3), group=4, pads=[1, 1, 1, 1]),
            qlinear_conv(draw, w=(6, 2, 1, 1), group=2, per_channel=True),
            qlinear_conv(draw, auto_pad="SAME_UPPER", strides=[2, 2], kernel_shape=[3, 3]),
            qlinear_conv(draw, x=(2, 4, 11), w=(5, 4, 3), pads=[1, 0]),
            qlinear_conv(draw, x=(1, 3, 4, 5, 6), w=(4, 3, 2, 2, 2)),
        ]
    )


def test_all_of_the_weights_range_and_numbers_of_one_element() -> None:
    """By ONNX's reference evaluator; a zero point may belong to a channel, the scale to all."""
    draw, ones = Draw(1), []
    for dtype in (np.int8, np.uint8):
        data, weight = draw.bytes(1, 16, 6, 6), draw.bytes(5, 16, 3, 3, dtype=dtype)
        one = [np.reshape(n, (1,)) for n in (f32(0.1), np.uint8(9), f32(0.01), dtype(3))]
        several = np.arange(5).astype(dtype)
        for w_zero in (one[3], several):
            w_scale = one[2]
            if w_zero is several:
                w_scale = np.full(5, 0.01, f32) if dtype == np.int8 else f32(0.01)
            constants = [*one[:2], weight, w_scale, w_zero, f32([3]), np.uint8([128])]
            case = One("QLinearConv", data, constants, [], exact=False)
            case.wanted = [np.empty(0)]  # one result
            case.wanted = ReferenceEvaluator(model_of([case])).run(None, {"x0": data})
            ones.append(case)
    check(ones)


def qlinear_mat_mul(
    draw: Draw, a=(5, 20), b=(20, 7), dtypes=(np.uint8, np.int8, np.uint8), columns=False, **how
) -> One:
    data = draw.bytes(*a, dtype=dtypes[0])
    weight = draw.bytes(*b, dtype=dtypes[1], most=HALF)
    scale = draw.scales(b[-1]) if columns else f32(0.011)
    zeros = np.full(np.shape(scale), 5, dtypes[1])
    rows = how.get("rows", False)
    x_scale = draw.scales(a[-2]) if rows else f32(0.02)
    x_zero = np.full(np.shape(x_scale), 30, dtypes[0])
    y_scale, y_zero = f32(0.2), dtypes[2](60)
    product = reals(data, x_scale, x_zero, -2) @ reals(weight, scale, zeros, -1)
    kind = how.get("scales", f32)
    constants = [kind(x_scale), x_zero, weight, kind(scale), zeros, kind(y_scale), y_zero]
    exact = kind is f32 and not rows and dtypes[0] == dtypes[2]
    wanted = [integers(product, y_scale, y_zero)]
    return One("QLinearMatMul", data, constants, wanted, exact=exact)


def test_qlinear_mat_mul() -> None:
    draw = Draw(2)
    s8, u8 = np.int8, np.uint8
    check(
        [
            qlinear_mat_mul(draw),
            qlinear_mat_mul(draw, columns=True),
            qlinear_mat_mul(draw, a=(2, 3, 5, 20), dtypes=(s8, s8, s8), columns=True),
            qlinear_mat_mul(draw, a=(3, 5, 20), b=(3, 20, 7), dtypes=(u8, u8, u8)),
            qlinear_mat_mul(draw, rows=True, columns=True),
            qlinear_mat_mul(draw, dtypes=(u8, s8, s8)),
            qlinear_mat_mul(draw, a=(1, 300), b=(300, 40)),
        ]
    )


def test_scales_of_float16_are_computed_with_in_float32() -> None:
    draw = Draw(3)
    one = qlinear_mat_mul(draw, scales=np.float16)
    scales = [np.asarray(one.constants[i]).astype(f32) for i in (0, 3, 5)]
    data, weight = reals(one.data, scales[0], 30), reals(one.constants[2], scales[1], 5)
    one.wanted = [integers(data @ weight, scales[2], np.uint8(60))]
    check([one])


def q_gemm(draw: Draw, alpha=1.0, trans_a=0, trans_b=0, columns=False, to_float=False) -> One:
    a, b = draw.bytes(5, 20), draw.bytes(20, 7, dtype=np.int8, most=HALF)
    scale = draw.scales(7) if columns else f32(0.01)
    zeros = np.full(np.shape(scale), 4, np.int8)
    bias = draw.random.integers(-3000, 3000, 7).astype(np.int32)
    product = reals(a, f32(0.05), 90) @ reals(b, scale, zeros, -1)
    product = np.float64(f32(alpha)) * (product + reals(bias, np.float64(f32(0.05)) * scale))
    result = [f32(0.15), np.uint8(100)]
    data, weight = (a.T if trans_a else a), (b.T if trans_b else b)
    constants = [f32(0.05), np.uint8(90), weight.copy(), scale, zeros, bias]
    attributes = {"alpha": alpha, "transA": trans_a, "transB": trans_b}
    wanted = product.astype(f32) if to_float else integers(product, *result)
    constants += [] if to_float else result
    return One("QGemm", data.copy(), constants, [wanted], attributes, MICROSOFT)


def test_q_gemm() -> None:
    draw = Draw(4)
    check(
        [
            q_gemm(draw),
            q_gemm(draw, trans_b=1, columns=True),
            q_gemm(draw, alpha=0.37, trans_a=1),
            q_gemm(draw, to_float=True, columns=True),
        ]
    )


def binary(draw: Draw, operator: str, dtype: type, shapes, zeros=True) -> One:
    a, b = (draw.bytes(*shape, dtype=dtype) for shape in shapes)
    zero = [dtype(n) if zeros else None for n in (90, 30, 50)]
    scales = f32([0.02, 0.013, 0.027])
    sides = [reals(x, s, z or 0) for x, s, z in zip((a, b), scales, zero, strict=False)]
    values = sides[0] + sides[1] if operator == "QLinearAdd" else sides[0] * sides[1]
    constants = [scales[0], zero[0], b, scales[1], zero[1], scales[2], zero[2]]
    wanted = integers(values, scales[2], zero[2] if zeros else dtype(0))
    # ONNX Runtime's type inference wants all zero points.
    return One(operator, a, constants, [wanted], {}, MICROSOFT, exact=zeros)


def test_sums_and_products_of_two() -> None:
    draw, ones = Draw(5), []
    for operator, dtype in itertools.product(("QLinearAdd", "QLinearMul"), (np.uint8, np.int8)):
        ones.append(binary(draw, operator, dtype, [(2, 3, 40), (2, 3, 40)]))
        ones.append(binary(draw, operator, dtype, [(2, 3, 40), (40,)]))
        ones.append(binary(draw, operator, dtype, [(1, 40), (3, 1)], zeros=False))
    check(ones)


def unary(draw: Draw, operator: str, scale: float, zero: int, dtype=np.uint8, **attributes) -> One:
    """``by`` is the operator on floats; ``exact`` as of ``One``."""
    by = attributes.pop("by")
    exact = attributes.pop("exact", True)
    x = draw.bytes(2, 6, 9, 9, dtype=dtype)
    x_zero, y_zero = dtype(20), dtype(zero)
    floats = {name: value for name, value in attributes.items() if name != "opset"}
    values = reals(x, f32(0.03), x_zero)
    if attributes.get("opset", 13) < 13:  # of a matrix: ONNX's evaluator has the newest one alone
        rows = values.reshape(np.prod(x.shape[: floats.pop("axis")]), -1)
        values = by_reference(by, rows).reshape(x.shape)
    else:
        values = by_reference(by, values, **floats)
    constants = [f32(0.03), x_zero, f32(scale), y_zero]
    wanted = integers(values, f32(scale), y_zero)
    return One(operator, x, constants, [wanted], attributes, MICROSOFT, exact)


def test_operators_of_one_tensor() -> None:
    draw = Draw(6)
    pool = {"by": "AveragePool", "kernel_shape": [3, 3], "strides": [2, 2]}
    leaky = {"by": "LeakyRelu"}
    check(
        [
            unary(draw, "QLinearGlobalAveragePool", 0.011, 40, by="GlobalAveragePool"),
            unary(draw, "QLinearGlobalAveragePool", 0.011, 4, np.int8, by="GlobalAveragePool"),
            unary(draw, "QLinearAveragePool", 0.029, 21, **pool),
            unary(draw, "QLinearAveragePool", 0.029, -3, np.int8, **pool, pads=[1, 1, 1, 1]),
            unary(draw, "QLinearAveragePool", 0.029, 9, **pool, pads=[1] * 4, count_include_pad=1),
            unary(draw, "QLinearLeakyRelu", 0.031, 33, **leaky),
            unary(draw, "QLinearLeakyRelu", 0.031, -33, np.int8, **leaky, alpha=0.3),
            unary(draw, "QLinearSigmoid", 1 / 256, 0, by="Sigmoid"),
            unary(draw, "QLinearSigmoid", 1 / 256, -128, np.int8, by="Sigmoid"),
        ]
    )


def test_softmax_and_mean() -> None:
    """ONNX Runtime adds integers of a table in its softmax, and has no kernel for the mean."""
    draw = Draw(7)
    new = {"by": "Softmax", "opset": 13, "exact": False}
    old = {"by": "Softmax", "opset": 11, "exact": False}
    mean = {"by": "ReduceMean", "exact": False}
    check(
        [
            unary(draw, "QLinearSoftmax", 1 / 256, 0, **new, axis=-1),
            unary(draw, "QLinearSoftmax", 1 / 256, -128, np.int8, **new, axis=1),
            unary(draw, "QLinearSoftmax", 1 / 2048, 0, **old, axis=2),
            unary(draw, "QLinearReduceMean", 0.0213, 50, **mean, axes=[2, 3], keepdims=0),
            unary(draw, "QLinearReduceMean", 0.0213, -5, np.int8, **mean, axes=[-1], keepdims=1),
        ],
        opset=17,
    )


def test_where_and_concat() -> None:
    draw, ones = Draw(8), []
    for dtype in (np.uint8, np.int8):
        a, b = draw.bytes(3, 30, dtype=dtype), draw.bytes(3, 40, dtype=dtype)
        numbers = [f32(0.02), dtype(90), f32(0.013), dtype(30)]
        values = reals(a, *numbers[:2]), reals(b, *numbers[2:])
        result = [f32(0.025), dtype(70)]
        pick = np.array([[True], [False], [True]])
        wanted = integers(np.where(pick, values[0], values[1][:, :30]), *result)
        constants = [a, *numbers[:2], b[:, :30].copy(), *numbers[2:], *result]
        ones.append(One("QLinearWhere", pick, constants, [wanted], {}, MICROSOFT))
        assert_concat(a, b, numbers, integers(np.concatenate(values, 1), *result), result)
    check(ones)


def assert_concat(a, b, numbers, wanted, result) -> None:
    """Its first inputs are numbers, so that the tensors stand behind them."""
    one = One("QLinearConcat", a, [*numbers[:2], b, *numbers[2:]], [wanted], {"axis": 1}, MICROSOFT)
    model = model_of([one])
    names = list(model.graph.node[0].input)
    for name, value in zip(("scale", "zero"), result, strict=True):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    model.graph.node[0].input[:] = ["scale", "zero", *names]
    (found,) = backend.prepare(model, min_bytes=0).run([a])
    assert_alike(found, wanted)
    assert_alike(found, onnxruntime_of(model, a)[0])


def test_attention() -> None:
    """ONNX Runtime decides; every weight has its scale, or all have one."""
    draw, ones = Draw(9), []
    bias = draw.random.standard_normal(48).astype(f32)
    for count in ((), (48,)):
        data, weight = draw.bytes(2, 5, 16), draw.bytes(16, 48, dtype=np.int8, most=HALF)
        numbers = [f32(0.01), np.full(count, 0.01, f32), None, np.uint8(120), np.zeros(count, "i1")]
        one = One("QAttention", data, [weight, bias, *numbers], [], {"num_heads": 2}, MICROSOFT)
        one.wanted = [np.empty(0)]  # one result
        one.wanted = onnxruntime_of(model_of([one]), data)
        ones.append(one)
    check(ones)


# ---------------------------------------------------------------------- networks

FORMS = {
    "int8": {"activation_type": QuantType.QInt8},
    "int8_per_channel": {"activation_type": QuantType.QInt8, "per_channel": True},
    "uint8_activations": {"activation_type": QuantType.QUInt8},
    "uint8_per_channel": {
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QUInt8,
        "per_channel": True,
    },
}


def quantised_network(network, folder: Path, form: str) -> onnx.ModelProto:
    """A float network in QOperator form, by ONNX Runtime."""
    plain, path = folder / "float.onnx", folder / "quantised.onnx"
    onnx.save(network(), plain)
    options = {"quant_format": QuantFormat.QOperator, "reduce_range": True, **FORMS[form]}
    quantize_static(plain, path, Batches(plain), **options)
    return onnx.load(path)


@pytest.mark.parametrize(
    ("network", "form"),
    [
        *((resnet_like, form) for form in FORMS),
        (bert_like, "int8"),
        (bert_like, "uint8_per_channel"),
    ],
)
def test_networks(network, form: str, tmp_path: Path) -> None:
    model = quantised_network(network, tmp_path, form)
    operators = {node.op_type for node in model.graph.node}
    assert {"QLinearAdd", "QLinearMul", "QGemm"} <= operators
    assert operators & {"QLinearConv", "QLinearMatMul"}
    compiled = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert compiled.report.offloaded_macs == compiled.report.macs > 0
    assert {entry.op for entry in compiled.report.left} <= {"relax.nn.max_pool2d"}
    if network is bert_like:
        assert len(compiled.report.regions) == 1 and compiled.report.left == ()
    (value,) = model.graph.input
    x = Draw(10).random.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim])
    x = x.astype(f32)
    (found,) = byoc.load(tmp_path / "m.so").run({value.name: x}).values()
    (wanted,) = onnxruntime_of(model, x)
    # Float32 sums may turn a tie the other way, which is one step of the result at most.
    assert np.abs(found - wanted).max() <= 0.01 * np.ptp(wanted)


def test_shapes_behind_operators_of_onnx_runtime_are_known(tmp_path: Path) -> None:
    """Arithmetic on the shape of their results is folded, of symbolic ones evaluated."""
    draw = Draw(11)
    one = binary(draw, "QLinearAdd", np.uint8, [(2, 6, 10), (10,)])
    model = model_of([one])
    graph, (result,) = model.graph, model.graph.output
    nodes = [
        helper.make_node("Shape", [result.name], ["shape"], end=2),
        helper.make_node("Concat", ["shape", "parts"], ["target"], axis=0),
        helper.make_node("Reshape", [result.name, "target"], ["y"]),
    ]
    graph.node.extend(nodes)
    graph.initializer.append(onnx.numpy_helper.from_array(np.int64([2, 5]), "parts"))
    result.name = "y"
    assert [node.op_type for node in prepare(model).graph.node] == ["QLinearAdd", "Reshape"]
    wanted = one.wanted[0].reshape(2, 6, 2, 5)
    for shapes in ({}, {"x0": ["n", 6, 10]}):
        if shapes:
            graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
        byoc.compile(model, tmp_path / "m.so", shapes, min_bytes=0)
        (found,) = byoc.load(tmp_path / "m.so").run({"x0": one.data}).values()
        assert_alike(found, wanted)
