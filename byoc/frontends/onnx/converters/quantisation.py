"""Scales and zero points, checked; TVM computes something of whatever it is given."""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.frontends.onnx.converters import block_weight
from byoc.frontends.onnx.converters.node import Node
from byoc.frontends.onnx.quantised_operators import QUANTISED_ALONG_AXES
from codegen_cc.dim import product, same


def linear(node: Node) -> relax.Expr:
    """QuantizeLinear and DequantizeLinear with one scale, or one for each element of an axis."""
    in_blocks = node.attrs.get("block_size", 0) != 0
    if not in_blocks:
        _check_shapes(node)
    _check_scale(node, in_blocks)
    zero = node.inputs[2]
    if node.operator == "DequantizeLinear" and zero is not None and node.dtype(2) != node.dtype():
        raise ValueError(
            f"the zero point is {node.dtype(2)}, the input {node.dtype()}; need one dtype"
        )
    if not in_blocks:
        return node.tvm()
    quantises = node.operator == "QuantizeLinear"
    return (block_weight.quantise_blocks if quantises else block_weight.dequantise_blocks)(node)


def _check_shapes(node: Node) -> None:
    data, scale = node.shape(), node.shape(1)
    if data is None or scale is None:
        return
    zero = node.shape(2) if node.inputs[2] is not None else scale
    if zero is not None and product(zero) != product(scale):
        raise ValueError(
            f"the zero point has shape {list(zero)}, the scale {list(scale)}; need as many of both"
        )
    if len(scale) == 0 or same(product(scale), 1):
        return
    # Before, one of ONNX's domain was refused with an axis, and one of com.microsoft may have it.
    axis = node.attrs.get("axis", 1 if node.opset >= QUANTISED_ALONG_AXES else None)
    if axis is None or not -len(data) <= axis < len(data):
        raise ValueError(f"scales of shape {list(scale)}; need one")
    if len(scale) != 1 or not same(scale[0], data[axis]):
        raise ValueError(
            f"scales of shape {list(scale)}; need one, or {data[axis]} as axis {axis} of"
            f" {list(data)} has"
        )


def _check_scale(node: Node, in_blocks: bool) -> None:
    """Scales of weights may be below 0: ONNX Runtime's quantiser of 4 bits and NNCF write such."""
    scale = node.constant(1)
    if scale is None:
        return
    values = scale.astype(np.float64).reshape(-1)
    quantises = node.operator == "QuantizeLinear"
    signed = in_blocks or node.constant(0) is not None
    wrong = ~np.isfinite(values) | (values <= 0 if quantises else (values < 0) & (not signed))
    if wrong.any():
        needed = " above 0" if quantises else "" if signed else " of 0 or more"
        raise ValueError(f"scale {values[wrong][0]:g}; need finite ones{needed}")


def dynamic(node: Node) -> relax.Expr:
    """DynamicQuantizeLinear: a tensor of zeros alone has the scale 1, where TVM divides by 0."""
    x = node.inputs[0]
    zero, most = relax.const(0.0, "float32"), relax.const(255.0, "float32")
    high = node.emit(relax.op.maximum(relax.op.max(x), zero))
    low = node.emit(relax.op.minimum(relax.op.min(x), zero))
    nothing = node.emit(relax.op.equal(high, low))
    width = node.emit(relax.op.divide(relax.op.subtract(high, low), most))
    scale = node.emit(relax.op.where(nothing, relax.const(1.0, "float32"), width))
    point = relax.op.subtract(zero, relax.op.divide(low, scale))
    point = relax.op.round(relax.op.clip(point, 0.0, 255.0))
    zero_point = node.emit(relax.op.astype(point, "uint8"))
    y = relax.op.quantize(x, scale, zero_point, axis=0, out_dtype="uint8")
    return relax.Tuple([y, scale, zero_point])
