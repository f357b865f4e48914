"""Products of quantised tensors: what quantised models write around a float operator, as one node.

    conv2d(dequantize(x, x_scale, x_zero_point), dequantize(w, w_scale, w_zero_point))

is a node on the integers x and w, with the scales and the zero point of x as operands.  Weights are
int8 without a zero point (see ``byoc.canonicalise.dequantised_weights``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax

from byoc.canonicalise.dequantised_weights import DEQUANTIZE
from byoc.ir.dataflow import Block, Constant, array_of, dtype_of, shape_of
from byoc.patterns.row import Candidate, tensor
from codegen_cc.dim import product, same
from codegen_cc.dtypes import KERNEL_BYTES
from codegen_cc.node import Operand
from codegen_cc.operators.requantise import (
    INNER_SCALES,
    INPUT_SCALES,
    OUTPUT_SCALES,
    RESIDUAL_SCALES,
)

#: The axis of a weight along which the channels of the result lie.
_CHANNELS = {"conv2d": 0, "matmul": -1}

#: Sides of binary functions.
_SIDES = ("lhs", "rhs")


def on_integers(
    block: Block, found: Candidate
) -> tuple[Candidate, tuple[relax.Var, relax.Var]] | None:
    """A product of floats as one of the integers behind them, and the bindings that it takes in.

    None where its sides are no quantised tensors, or others read their float values as well.
    """
    node = found.node
    if node.op == "binary":
        return _binary_on_integers(block, found)
    channels = _CHANNELS.get(node.op)
    sides = found.arguments[:2]
    calls = [block.call(side, DEQUANTIZE) for side in sides]
    known = all(call is not None for call in calls)
    if channels is None or not known or not all(map(block.is_private, sides)):
        return None
    (x, *x_numbers), (w, *w_numbers) = (call.args for call in calls)
    if dtype_of(x) not in KERNEL_BYTES or not all(map(_may_scale_data, x_numbers)):
        return None
    if not _is_weight(calls[1], len(node.operands[1].shape) + channels):
        return None
    extra = (*x_numbers, w_numbers[0])
    data, filters = node.operands[:2]
    operands = (
        replace(data, dtype=dtype_of(x), constant=isinstance(x, Constant)),
        replace(filters, dtype=dtype_of(w), constant=True),
        *(tensor(value, role) for role, value in zip(INPUT_SCALES, extra, strict=True)),
    )
    return Candidate(replace(node, operands=operands), (x, w, *extra)), sides


def _binary_on_integers(
    block: Block, found: Candidate
) -> tuple[Candidate, tuple[relax.Var, relax.Var]] | None:
    sides = found.arguments
    calls = [block.call(side, DEQUANTIZE) for side in sides]
    known = all(call is not None for call in calls)
    if not known or not all(map(block.is_private, sides)):
        return None
    operands, extra, arguments = [], [], []
    for role, operand, call in zip(_SIDES, found.node.operands, calls, strict=True):
        numbers = [array_of(number) for number in call.args[1:]]
        if dtype_of(call.args[0]) not in KERNEL_BYTES or not all(map(_is_number, numbers)):
            return None
        integers = call.args[0]
        constants = isinstance(integers, Constant)
        operands.append(replace(operand, dtype=dtype_of(integers), constant=constants))
        arguments.append(integers)
        names = (f"{role}_scale", f"{role}_zero_point")
        extra += zip(names, call.args[1:], strict=True)
    operands += [tensor(value, role) for role, value in extra]
    arguments += [value for _, value in extra]
    node = replace(found.node, operands=tuple(operands))
    return Candidate(node, tuple(arguments)), sides


def quantize_parameters(call: relax.Call) -> tuple[list[Operand], list[relax.Expr]] | None:
    """Scale and zero point of a ``quantize`` of the whole tensor, as operands; None for others."""
    numbers = [array_of(argument) for argument in call.args[1:]]
    if not all(map(_is_number, numbers)) or dtype_of(call) not in KERNEL_BYTES:
        return None
    values = list(call.args[1:])
    operands = [tensor(value, role) for role, value in zip(OUTPUT_SCALES, values, strict=True)]
    return operands, values


def dequantized_again(found: Candidate, call: relax.Call) -> Candidate | None:
    """A node that gives the numbers of its integers, where ``call`` dequantises its result.

    None where that takes other numbers than the node quantised with.
    """
    names = dict(zip(OUTPUT_SCALES, INNER_SCALES, strict=True))
    own = {
        operand.role: array_of(argument)
        for operand, argument in zip(found.node.operands, found.arguments, strict=True)
        if operand.role in names
    }
    arrays = [array_of(argument) for argument in call.args[1:]]
    pairs = zip(own.values(), arrays, strict=False)
    if len(own) != len(arrays) or not all(_is_number(b) and a.item() == b.item() for a, b in pairs):
        return None
    operands = tuple(
        replace(operand, role=names.get(operand.role, operand.role))
        for operand in found.node.operands
    )
    node = replace(found.node, operands=operands, dtype=dtype_of(call))
    return Candidate(node, found.arguments)


def residual_of(block: Block, var: relax.Expr) -> tuple[list[Operand], list[relax.Expr]] | None:
    """The operands of a step that adds a dequantised tensor; None for others."""
    call = block.call(var, DEQUANTIZE)
    if call is None or not isinstance(call.args[0], relax.Var):
        return None
    values = list(call.args)
    if dtype_of(values[0]) not in KERNEL_BYTES:
        return None
    if not all(_is_number(array_of(value)) for value in values[1:]):
        return None
    roles = ("residual", *RESIDUAL_SCALES)
    return [tensor(value, role) for value, role in zip(values, roles, strict=True)], values


def _is_weight(call: relax.Call, channels: int) -> bool:
    """Whether a dequantize gives the weight of a product on integers.

    It is a constant of int8 without a zero point, with a scale or one for each channel.
    """
    values, scale, zero_point = (array_of(argument) for argument in call.args)
    known = all(array is not None for array in (values, scale, zero_point))
    if not known or values.dtype != np.int8 or zero_point.any():
        return False
    if scale.dtype != np.single or not np.isfinite(scale).all():
        return False
    rank = values.ndim
    along = int(call.attrs.axis) % rank == channels % rank
    return scale.size == 1 or (along and scale.size == values.shape[channels % rank])


def _may_scale_data(number: relax.Expr) -> bool:
    """Whether it is a finite constant, or one number that is computed."""
    if isinstance(number, Constant):
        return _is_number(array_of(number))
    shape = shape_of(number)
    return shape is not None and same(product(shape), 1)


def _is_number(array: np.ndarray | None) -> bool:
    return array is not None and array.size == 1 and bool(np.isfinite(array).all())
