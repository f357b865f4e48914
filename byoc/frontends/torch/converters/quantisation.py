"""Quantised networks as ``torchao``'s pt2e writes them.

    quantize    y = clamp(round(x / scale) + zero point, least, most)
    dequantize  y = (x - zero point) scale

PyTorch computes the first one with the reciprocal of the scale, so that a tie may be rounded to the
other side. Weights stay integers: products of what was dequantised have kernels on integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tvm import relax
from tvm.relax import op

from byoc.frontends.torch.converters.elementwise import cast
from byoc.frontends.torch.values import Converter, Graph, Value, dtype_name
from byoc.ir.dataflow import shape_of
from codegen_cc.dtypes import KERNEL_BYTES, KERNEL_HALVES, SINGLE

#: The namespace of all of these.
_SPACE = "quantized_decomposed::"
#: Integers that are dequantised as they are: data, weights and biases.
_INTEGERS = (*KERNEL_BYTES, "int16", "uint16", "int32")


def quantise(
    g: Graph,
    input: Value,
    scale: Value,
    zero_point: Value,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    axis: int = 0,
) -> relax.Expr:
    """One scale for all, or one for each element of an axis."""
    scale, zero_point = _known(scale), _known(zero_point)
    x, steps = g.tensor(input, SINGLE), _numbers(g, scale, SINGLE)
    known = torch.iinfo(dtype)
    whole = (int(quant_min), int(quant_max)) == (known.min, known.max)
    if not whole and isinstance(scale, int | float) and isinstance(zero_point, int):
        x = g.emit(op.clip(x, (quant_min - zero_point) * scale, (quant_max - zero_point) * scale))
        whole = True
    if whole and g.dtype in KERNEL_BYTES:
        return op.quantize(x, steps, _numbers(g, zero_point, g.dtype), axis, g.dtype)
    places = op.divide(x, _along(g, steps, x, axis))
    shift = _along(g, _numbers(g, zero_point, SINGLE), x, axis)
    moved = g.emit(op.add(op.round(places), shift))
    return op.astype(op.clip(moved, float(quant_min), float(quant_max)), g.dtype)


def dequantise(
    g: Graph,
    input: Value,
    scale: Value,
    zero_point: Value | None,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    out_dtype: torch.dtype | None = None,
    axis: int = 0,
) -> relax.Expr:
    """One scale for all, or one for each element of an axis."""
    x = g.tensor(input)
    steps, zero = _numbers(g, scale, SINGLE), 0 if zero_point is None else zero_point
    kind = str(x.ty.dtype)
    if kind in _INTEGERS:
        point = _numbers(g, zero, kind)
        if shape_of(steps) and not shape_of(point):
            point = g.emit(op.broadcast_to(point, steps.ty.shape))
        y = op.dequantize(x, steps, point, axis, SINGLE)
    else:
        shift = _along(g, _numbers(g, zero, SINGLE), x, axis)
        y = op.multiply(op.subtract(g.tensor(x, SINGLE), shift), _along(g, steps, x, axis))
    return y if g.dtype == SINGLE else op.astype(g.emit(y), g.dtype)


def quantise_channels(
    g: Graph, input: Value, scales: Value, zero_points: Value, axis: int, **others: object
) -> relax.Expr:
    """A scale and a zero point for each element of an axis."""
    return quantise(g, input, scales, zero_points, axis=axis, **others)


def dequantise_channels(
    g: Graph, input: Value, scales: Value, zero_points: Value | None, axis: int, **others: object
) -> relax.Expr:
    """A scale, and where there are any a zero point, for each element of an axis."""
    return dequantise(g, input, scales, zero_points, axis=axis, **others)


def _known(value: Value) -> Value:
    """A constant of one element as the number that it is."""
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def _numbers(g: Graph, value: Value, dtype: str) -> relax.Expr:
    """Scales or zero points, one without an axis."""
    expr = g.tensor(value, dtype)
    return g.emit(op.reshape(expr, [])) if shape_of(expr) == (1,) else expr


def _along(g: Graph, numbers: relax.Expr, x: relax.Expr, axis: int) -> relax.Expr:
    """Numbers for the elements of an axis, to compute with a tensor."""
    if not shape_of(numbers):
        return numbers
    shape = [1] * x.ty.ndim
    shape[axis] = -1
    return g.emit(op.reshape(numbers, shape))


#: Products of matrices, and the place of their weight.
_PRODUCTS = {"mm": 1, "addmm": 2, "linear": 1, "matmul": 1}
#: What is done to a weight before, and to one in blocks.
_TURNS = ("permute", "t", "transpose")
_OF_BLOCKS = ("sub", "mul", "view", "reshape", *_TURNS)


def casts_weight(node: torch.fx.Node) -> bool:
    """Whether a node makes floats of bytes that only products read, as their weight.

    A matrix, as torchao's layers with int8 weights have it, or blocks ``[columns, blocks, block]``
    with zero points and scales of their own (``byoc.canonicalise.block_weight``).
    """
    if node.target is not torch.ops.aten._to_copy.default:
        return False
    made, given = node.meta["val"], node.args[0].meta["val"]
    kinds = dtype_name(given.dtype), dtype_name(made.dtype)
    if kinds[0] not in KERNEL_BYTES or kinds[1] not in (SINGLE, *KERNEL_HALVES):
        return False
    steps = {2: _TURNS, 3: _OF_BLOCKS}.get(made.dim(), ())
    return bool(steps) and _is_weight(node, steps)


def _is_weight(node: torch.fx.Node, steps: Sequence[str]) -> bool:
    return bool(node.users) and all(_takes_weight(user, node, steps) for user in node.users)


def _takes_weight(user: torch.fx.Node, node: torch.fx.Node, steps: Sequence[str]) -> bool:
    name = getattr(user.target, "_opname", "")
    if name in steps:
        return user.args[0] is node and _is_weight(user, steps)
    return name in _PRODUCTS and [*user.args].index(node) == _PRODUCTS[name]


def weight_or_cast(g: Graph, x: Value, **_: object) -> relax.Expr:
    """The same values in the result's dtype, of a weight of bytes as floats that they stand for."""
    if not isinstance(x, torch.Tensor) or dtype_name(x.dtype) not in KERNEL_BYTES:
        return cast(g, x)
    if x.dim() == 3:  # other constants are folded
        return op.astype(g.tensor(x), g.dtype)
    nothing = relax.const(0, dtype_name(x.dtype))
    y = op.dequantize(g.tensor(x), relax.const(1.0, SINGLE), nothing, -1, SINGLE)
    return y if g.dtype == SINGLE else op.astype(g.emit(y), g.dtype)


QUANTISATION: dict[str, Converter] = {
    _SPACE + "quantize_per_tensor": quantise,
    _SPACE + "quantize_per_channel": quantise_channels,
    _SPACE + "dequantize_per_tensor": dequantise,
    _SPACE + "dequantize_per_channel": dequantise_channels,
    "_to_copy": weight_or_cast,
}

#: What gives floats of integers, also of constant ones.
KEEPS_INTEGERS = {name: convert for name, convert in QUANTISATION.items() if "dequan" in name}
