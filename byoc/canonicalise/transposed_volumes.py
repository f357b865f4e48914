"""Turn transposed convolutions of volumes into convolutions, where that is faster or no kernel is.

Where kernel size and stride are equal every output has one tap: that is a pointwise convolution
with channels (a, b, c, o), whose elements are then put in their places, as of images
(``transposed_conv_to_conv``). It is faster where there are few outputs.

Where outputs have no tap, there is no kernel: with zeros between its elements, so that they lie a
stride apart, and as many around as a tap may reach, a volume is convolved with the kernel turned
round.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from byoc.canonicalise.transposed_conv_to_conv import (
    has_layouts,
    is_disjoint,
    numbers_of,
    pointwise,
    put_in_place,
    turned_kernel,
)
from byoc.ir.dataflow import Block, array_of, constant, dtype_of, is_kernel_float, shape_of
from codegen_cc.operators.conv2d_transpose_phases import fills_panels, has_all_taps


def convolved_volumes(block: Block) -> None:
    """Rewrite fp32 transposed convolutions of volumes with a constant weight."""
    for var, call in block.calls("relax.nn.conv3d_transpose"):
        weight = array_of(call.args[1])
        if weight is None or not is_kernel_float(var) or shape_of(call.args[0]) is None:
            continue
        if not has_layouts(call, "NCDHW", "IODHW") or shape_of(var) is None:
            continue
        if is_disjoint(call, weight) and not fills_panels(weight.shape[1]):
            rewrite = _placed
        elif _have_taps(call, weight):
            continue
        else:
            rewrite = _spread
        block.replace(var, relax.op.reshape(rewrite(block, var, call, weight), var.ty.shape))


def _have_taps(call: relax.Call, weight: np.ndarray) -> bool:
    """Whether the kernel computes it: every output has a tap."""
    numbers = numbers_of(call)
    told = (numbers[name] for name in ("strides", "dilation", "padding"))
    return has_all_taps(weight.shape[2:], *told)


def _placed(block: Block, var: relax.Var, call: relax.Call, weight: np.ndarray) -> relax.Expr:
    """One tap for each output."""
    kernel = constant(pointwise(weight), dtype_of(var))
    value = block.emit(var, relax.op.nn.conv3d(call.args[0], kernel), "conv")
    return put_in_place(block, var, value, call.args[0], weight)


def _spread(block: Block, var: relax.Var, call: relax.Call, weight: np.ndarray) -> relax.Expr:
    """Zeros between and around."""
    groups, dtype = int(call.attrs.groups), dtype_of(var)
    value, widths = spread_out(block, var, call, weight.shape[2:])
    kernel = constant(np.ascontiguousarray(turned_kernel(weight, groups)), dtype)
    padding = [begin for begin, _ in widths] + [end for _, end in widths]
    dilation = numbers_of(call)["dilation"]
    made = relax.op.nn.conv3d(value, kernel, 1, padding, dilation, groups)
    return block.emit(var, made, "conv")


def spread_out(
    block: Block, var: relax.Var, call: relax.Call, taps: Sequence[int]
) -> tuple[relax.Expr, list[tuple[int, int]]]:
    """The data of a transposed convolution with zeros between, and how many belong around them.

    With these its taps, from the last to the first, are those of a convolution of stride 1. Axes
    behind those of ``taps`` stay as they are.
    """
    numbers, value, widths = numbers_of(call), call.args[0], []
    rank = len(numbers["strides"])
    sides = numbers["padding"] * (2 * rank // len(numbers["padding"]))
    for axis, size in enumerate(taps):
        step = numbers["strides"][axis]
        reach = numbers["dilation"][axis] * (size - 1)
        begin = reach - sides[axis]
        end = reach - sides[rank + axis] + numbers["output_padding"][axis] - (step - 1)
        value = _apart(block, var, value, 2 + axis, step)
        value = _cut_off(block, var, value, 2 + axis, begin, end)
        widths.append((max(begin, 0), max(end, 0)))
    return value, widths


def _apart(block: Block, var: relax.Var, value: relax.Expr, axis: int, step: int) -> relax.Expr:
    """Elements of an axis a step apart, with zeros behind each."""
    if step == 1:
        return value
    shape = list(value.ty.shape.values)
    before, behind = shape[: axis + 1], shape[axis + 1 :]
    each = block.emit(var, relax.op.expand_dims(value, axis + 1))
    zero = constant(np.zeros(()), dtype_of(var))
    zeros = block.emit(var, relax.op.broadcast_to(zero, (*before, step - 1, *behind)))
    both = block.emit(var, relax.op.concat([each, zeros], axis + 1))
    return block.emit(var, relax.op.reshape(both, (*shape[:axis], shape[axis] * step, *behind)))


def _cut_off(
    block: Block, var: relax.Var, value: relax.Expr, axis: int, begin: int, end: int
) -> relax.Expr:
    """Without what widths below 0 take away from an axis."""
    if begin >= 0 and end >= 0:
        return value
    first, last = max(-begin, 0), value.ty.shape.values[axis] + min(end, 0)
    cut = relax.op.strided_slice(value, [axis], [first], [last], [1], assume_inbound=True)
    return block.emit(var, cut)
