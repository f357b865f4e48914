"""Operators on quantised tensors: those on floats, between dequantize and quantize.

    QLinearConv = quantize(Conv(dequantize(x), dequantize(w), dequantize(bias)))

in the form in which QuantizeLinear, DequantizeLinear and Conv are imported.  A pattern reads that
form back as one operator on integers, whichever form the model had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from byoc.frontends.onnx.converters import quantisation
from byoc.frontends.onnx.converters.node import Node
from byoc.frontends.onnx.quantised_operators import Places, quantised
from byoc.ir.dataflow import array_of, constant, dtype_of, shape_of


def qlinear(node: Node) -> relax.Expr:
    """An operator of the QOperator form, by the one on floats."""
    attrs = _attributes(node)
    known = quantised(node.operator, len(node.inputs), attrs)
    opset = attrs.pop("opset", node.opset)  # whose Softmax it is
    if known.operator == "Softmax":
        attrs.setdefault("axis", -1)  # whatever that opset says
    if known.operator == "ReduceMean":
        opset = min(opset, 13)  # the axes are an attribute
    if attrs.pop("channels_last", 0):
        raise ValueError("channels_last=1; need the channels behind the batch")
    inputs = [_dequantised(node, places) for places in known.operands]
    if known.operator == "Where":
        inputs.insert(0, node.inputs[0])
    if known.bias is not None and node.inputs[known.bias] is not None:
        inputs.append(_bias(node, known.bias, known.operands))
    if known.operator == "Gemm":
        attrs["beta"] = attrs.get("alpha", 1.0)  # of the sums with their bias
    result = node.part(known.operator, inputs, attrs, opset)
    return _quantised(node, result, known.result, known.operands[0])


def mat_mul_integer_to_float(node: Node) -> relax.Expr:
    """Product of dequantised matrices, and a float bias."""
    known = quantised(node.operator, len(node.inputs), node.attrs)
    sides = [_dequantised(node, places) for places in known.operands]
    return _with_bias(node, node.part("MatMul", sides, {}, node.opset), 6)


def dynamic_quantize_mat_mul(node: Node) -> relax.Expr:
    """Product of a matrix that is quantised by its own range with a dequantised one."""
    known = quantised(node.operator, len(node.inputs), node.attrs)
    integers, *numbers = map(node.emit, quantisation.dynamic(node).fields)
    data = relax.op.dequantize(integers, *numbers, _axis(integers), "float32")
    sides = [node.emit(data), _dequantised(node, known.operands[0])]
    return _with_bias(node, node.part("MatMul", sides, {}, node.opset), 4)


def _with_bias(node: Node, product: relax.Expr, place: int) -> relax.Expr:
    bias = node.inputs[place]
    return product if bias is None else relax.op.add(product, bias)


def attention(node: Node) -> relax.Expr:
    """QAttention: input and weight are quantised, the bias and the result are not."""
    attrs = _attributes(node)
    known = quantised(node.operator, len(node.inputs), attrs)
    for name in ("unidirectional", "do_rotary", "past_present_share_buffer"):
        if not attrs.get(name, 0):
            attrs.pop(name, None)  # TVM's converter refuses it, whatever it says
    sides = [_dequantised(node, places) for places in known.operands]
    others = [node.inputs[place] for place in (2, 5, 8)]  # bias, mask, past
    return node.part("Attention", [*sides, *others], attrs, 1)


def conv_integer(node: Node) -> relax.Expr:
    """A convolution of 32-bit integers, exact."""
    attrs = _attributes(node)
    data, weight = (_without_zero_point(node, places) for places in ((0, 2, None), (1, 3, 0)))
    return node.part("Conv", [data, weight], attrs, node.opset)


def _without_zero_point(node: Node, places: tuple[int, int, int | None]) -> relax.Expr:
    value, zero_point, axis = node.inputs[places[0]], node.inputs[places[1]], places[2]
    wide = relax.op.astype(value, "int32")
    if zero_point is None:
        return node.emit(wide)
    zero_point = node.emit(relax.op.astype(_number(node, zero_point), "int32"))
    if axis is not None and shape_of(zero_point):
        along = [1] * len(shape_of(value))
        along[axis] = -1
        zero_point = relax.op.reshape(zero_point, along)
    return node.emit(relax.op.subtract(wide, zero_point))


# ---------------------------------------------------------------------- parts


def _attributes(node: Node) -> dict[str, Any]:
    """The attributes, all of which count as read."""
    return {name: node.attrs[name] for name in node.attrs if name != "tvm_custom"}


def _axis(expr: relax.Expr) -> int:
    """The axis that TVM's converters give for one scale of the whole tensor."""
    return 1 if len(shape_of(expr) or ()) > 1 or expr.ty.ndim > 1 else 0


def _number(node: Node, expr: relax.Expr) -> relax.Expr:
    """A tensor of one element without axes; any other one as it is."""
    shape = shape_of(expr)
    if shape != (1,):
        return expr
    value = array_of(expr)
    if value is not None:
        return constant(value.reshape(()), dtype_of(expr))
    return node.emit(relax.op.reshape(expr, ()))


def _mapped(
    node: Node,
    by_numpy: Callable[..., np.ndarray],
    by_relax: Callable[..., relax.Expr],
    *operands: relax.Expr,
) -> relax.Expr:
    """A function of scales, computed now where they are constants."""
    values = [array_of(operand) for operand in operands]
    if any(value is None for value in values):
        return node.emit(by_relax(*operands))
    result = np.asarray(by_numpy(*values))
    return constant(result, str(result.dtype))


def _numbers(
    node: Node, places: Places, value: relax.Expr, dtype: str
) -> tuple[relax.Expr, relax.Expr, int]:
    """Scale in float32, zero point and axis of a tensor; both numbers have as many elements."""
    scale = _number(node, node.inputs[places.scale])
    if dtype_of(scale) != "float32":
        scale = _mapped(
            node,
            lambda number: number.astype(np.float32),
            lambda number: relax.op.astype(number, "float32"),
            scale,
        )
    zero_point = node.inputs[places.zero_point]
    zero_point = relax.const(0, dtype) if zero_point is None else _number(node, zero_point)
    shapes = [shape_of(number) for number in (scale, zero_point)]
    if shapes[0] != shapes[1]:
        longer = max(shapes, key=len)
        scale, zero_point = (
            _mapped(
                node,
                lambda number: np.broadcast_to(number, longer),
                lambda number: relax.op.broadcast_to(number, longer),
                number,
            )
            for number in (scale, zero_point)
        )
    if shape_of(scale) == ():
        return scale, zero_point, _axis(value)
    return scale, zero_point, places.axis % value.ty.ndim


def _dequantised(node: Node, places: Places) -> relax.Expr:
    value = node.inputs[places.value]
    scale, zero_point, axis = _numbers(node, places, value, dtype_of(value))
    return node.emit(relax.op.dequantize(value, scale, zero_point, axis, "float32"))


def _quantised(
    node: Node, result: relax.Expr, places: Places | None, operand: Places
) -> relax.Expr:
    """The result as integers of its zero point's dtype, or else of the first operand's."""
    if places is None or node.inputs[places.scale] is None:
        return result
    zero_point = node.inputs[places.zero_point]
    dtype = dtype_of(node.inputs[operand.value] if zero_point is None else zero_point)
    scale, zero_point, axis = _numbers(node, places, result, dtype)
    return relax.op.quantize(result, scale, zero_point, axis, dtype)


def _bias(node: Node, place: int, operands: tuple[Places, ...]) -> relax.Expr:
    """The int32 bias in units of the operands' scales."""
    scales = [_numbers(node, p, node.inputs[p.value], "int8")[0] for p in operands]
    scale = _mapped(node, np.multiply, relax.op.multiply, *scales)
    bias = node.inputs[place]
    zero_point = relax.const(0, "int32")
    shape = shape_of(scale)
    if shape:
        zero_point = constant(np.zeros(shape, np.int32), "int32")
    return node.emit(relax.op.dequantize(bias, scale, zero_point, bias.ty.ndim - 1, "float32"))
