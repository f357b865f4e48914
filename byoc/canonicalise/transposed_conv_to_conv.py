"""Turn a transposed convolution of stride 1 into a plain one, one without overlap into a pointwise.

With stride 1 it is a convolution with the kernel turned round:

    y[oh] = sum_kh x[oh + top - kh dh] w[kh]
          = sum_kh x[oh + kh dh - ((K - 1) dh - top)] w[K - 1 - kh]

With kernel size equal to stride, every output pixel gets exactly one tap:

    y[n, o, s i + a, t j + b] = sum_c x[n, c, i, j] * W[c, o, a, b]

which is a 1x1 convolution with channels (a, b, o), whose pixels are then put in their places: in
this order the channels of a pixel stay together, so that whole runs of them move. A bias and a
simple activation that follow move in front of that, into reach of the epilogue.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.ir.dataflow import Block, array_of, constant, dtype_of, is_kernel_float, shape_of

#: Functions of single elements that may move across a permutation of elements.
MOVABLE = ("relax.nn.relu", "relax.sigmoid", "relax.tanh")


def transposed_conv_to_conv(block: Block) -> None:
    """Rewrite fp32 transposed convolutions with a constant weight and stride 1 or no overlap."""
    _turned_round(block)
    for var, call in block.calls("relax.nn.conv2d_transpose"):
        weight = array_of(call.args[1])
        if weight is None or not is_kernel_float(var) or not is_disjoint(call, weight):
            continue
        if not has_layouts(call, "NCHW", "IOHW"):
            continue
        if shape_of(call.args[0]) is None or shape_of(var) is None:
            continue
        _, outer, down, across = weight.shape
        kernel = constant(pointwise(weight), dtype_of(var))
        value: relax.Expr = block.emit(var, relax.op.nn.conv2d(call.args[0], kernel), "conv")
        last = var
        bias = _following_bias(block, var, outer)
        if bias is not None:
            (last,) = block.users(var)
            repeated = np.tile(bias, down * across).reshape(1, -1, 1, 1)
            value = block.emit(var, relax.op.add(value, constant(repeated, dtype_of(var))))
        if block.is_private(last):
            (reader,) = block.users(last)
            follower = block.call(reader, *MOVABLE)
            if follower is not None:
                value = block.emit(var, relax.Call(follower.op, [value], follower.attrs))
                last = reader
        placed = put_in_place(block, var, value, call.args[0], weight)
        block.replace(last, relax.op.reshape(placed, var.ty.shape))


def _turned_round(block: Block) -> None:
    """Those of stride 1, where padding takes no more than the taps reach beyond the image."""
    for var, call in block.calls("relax.nn.conv2d_transpose"):
        weight, numbers = array_of(call.args[1]), numbers_of(call)
        if weight is None or not is_kernel_float(var) or set(numbers["strides"]) != {1}:
            continue
        reach = [(k - 1) * d for k, d in zip(weight.shape[2:], numbers["dilation"], strict=True)]
        padding = [far - cut for far, cut in zip(2 * reach, numbers["padding"], strict=True)]
        if min(padding) < 0 or not has_layouts(call, "NCHW", "IOHW") or shape_of(var) is None:
            continue
        groups, dilation = int(call.attrs.groups), numbers["dilation"]
        kernel = constant(np.ascontiguousarray(turned_kernel(weight, groups)), dtype_of(var))
        plain = relax.op.nn.conv2d(call.args[0], kernel, 1, padding, dilation, groups)
        block.replace(var, relax.op.reshape(block.emit(var, plain, "conv"), var.ty.shape))


def turned_kernel(weight: np.ndarray, groups: int) -> np.ndarray:
    """[O, I/groups, *taps] of the convolution that [I, O/groups, *taps] amount to."""
    inner, outer, *taps = weight.shape
    parts = weight.reshape(groups, inner // groups, outer, *taps).swapaxes(1, 2)
    return np.flip(
        parts.reshape(groups * outer, inner // groups, *taps), tuple(range(2, weight.ndim))
    )


def has_layouts(call: relax.Call, data: str, kernel: str) -> bool:
    """Whether operands and result of a convolution have these layouts."""
    attrs = call.attrs
    found = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or data)
    return found == (data, kernel, data)


def numbers_of(call: relax.Call) -> dict[str, list[int]]:
    """What a transposed convolution tells of each of its axes."""
    names = ("strides", "padding", "output_padding", "dilation")
    return {name: [int(value) for value in getattr(call.attrs, name)] for name in names}


def is_disjoint(call: relax.Call, weight: np.ndarray) -> bool:
    """Whether every element of the result gets exactly one tap, of all channels."""
    numbers = numbers_of(call)
    return (
        int(call.attrs.groups) == 1
        and numbers["strides"] == list(weight.shape[2:])
        and not any(numbers["padding"] + numbers["output_padding"])
        and set(numbers["dilation"]) == {1}
    )


def pointwise(weight: np.ndarray) -> np.ndarray:
    """[c, o, *taps] as the weight of a pointwise convolution, with outputs (*taps, o)."""
    spatial = weight.ndim - 2
    turned = weight.transpose(*range(2, weight.ndim), 1, 0)
    return np.ascontiguousarray(turned.reshape(-1, weight.shape[0], *[1] * spatial))


def put_in_place(
    block: Block, var: relax.Var, value: relax.Expr, source: relax.Expr, weight: np.ndarray
) -> relax.Expr:
    """[N, (*taps, o), *sizes] of that convolution of ``source`` as [N, o, size, tap, ...]."""
    _, outer, *taps = weight.shape
    batch, _, *sizes = source.ty.shape.values
    split = block.emit(var, relax.op.reshape(value, (batch, *taps, outer, *sizes)))
    count = len(taps)
    order = [axis for tap in range(1, count + 1) for axis in (count + 1 + tap, tap)]
    return block.emit(var, relax.op.permute_dims(split, [0, count + 1, *order]))


def _following_bias(block: Block, var: relax.Var, channels: int) -> np.ndarray | None:
    """The per-channel constant that is added by the only reader of a variable."""
    if not block.is_private(var):
        return None
    (reader,) = block.users(var)
    call = block.call(reader, "relax.add")
    if call is None or shape_of(reader) != shape_of(var):
        return None
    values = array_of(call.args[1] if call.args[0] == var else call.args[0])
    if values is None or values.size != channels or values.ndim < 3:
        return None
    return values.reshape(-1) if values.shape[-3] == channels else None
