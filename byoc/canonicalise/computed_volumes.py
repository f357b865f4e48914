"""Write convolutions of volumes with a computed weight as convolutions of images with one.

    y[n, od] = sum_kd conv2d(x[n, od sd + kd dd - front], w[kd])

Each plane of the result is an image, whose channels are those of all planes that its taps of the
depth read. Where every channel is a group of its own, the sum is written as it stands: a group of
few channels takes longer. A transposed convolution reads planes with zeros between them, from the
last tap to the first, and is one of these images: ``computed_filters`` goes on with both.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from byoc.canonicalise.computed_convolutions import computed_convolutions
from byoc.canonicalise.transposed_volumes import spread_out
from byoc.ir.dataflow import Block, op_name, shape_of

_TRANSPOSED = "relax.nn.conv3d_transpose"

#: Planes before their channels, and back.
_DEPTH_FIRST = [0, 2, 1, 3, 4]


def computed_volumes(block: Block, computed: Callable[[relax.Call], bool]) -> None:
    """Rewrite fp32 convolutions of volumes whose weight is no constant."""
    for var, call, _ in computed_convolutions(block, "relax.nn.conv3d", "DHW", computed):
        block.replace(var, _images(block, var, call))


def _images(block: Block, var: relax.Var, call: relax.Call) -> relax.Expr:
    """The convolution of images, or the sum of them, and its results as volumes."""
    parts, filters = _planes(block, var, call), _filters(block, var, call)
    _, channels, *size = parts[0].ty.shape.values
    groups, outputs = int(call.attrs.groups), shape_of(var)[1]
    if groups == channels == outputs:
        found: relax.Expr | None = None
        for tap, part in enumerate(parts):
            weight = relax.op.strided_slice(filters, [1], [tap], [tap + 1])
            one = _convolved(block, var, call, part, block.emit(var, weight))
            found = one if found is None else block.emit(var, relax.op.add(found, one))
    elif len(parts) > 1:
        shape = [-1, groups, int(channels) // groups, *size]
        parts = [block.emit(var, relax.op.reshape(part, shape)) for part in parts]
        whole = block.emit(var, relax.op.concat(parts, 2))
        shape = [-1, int(channels) * len(parts), *size]
        whole = block.emit(var, relax.op.reshape(whole, shape))
        found = _convolved(block, var, call, whole, filters)
    else:
        found = _convolved(block, var, call, parts[0], filters)
    batch, outputs, depth, *size = var.ty.shape.values
    planes = block.emit(var, relax.op.reshape(found, [batch, depth, outputs, *size]))
    return relax.op.permute_dims(planes, _DEPTH_FIRST)


def _convolved(
    block: Block, var: relax.Var, call: relax.Call, image: relax.Expr, weight: relax.Expr
) -> relax.Var:
    """The convolution of images by what the call says of rows and columns."""
    strides, dilation = _numbers(call, "strides")[1:], _numbers(call, "dilation")[1:]
    sides, groups = _numbers(call, "padding"), int(call.attrs.groups)
    padding = sides[1:3] + sides[4:]
    if op_name(call) == _TRANSPOSED:
        extra = _numbers(call, "output_padding")[1:]
        made = relax.op.nn.conv2d_transpose(
            image, weight, strides, padding, extra, dilation, groups
        )
    else:
        made = relax.op.nn.conv2d(image, weight, strides, padding, dilation, groups)
    return block.emit(var, made, "conv")


def _planes(block: Block, var: relax.Var, call: relax.Call) -> list[relax.Var]:
    """[(batch, depth of the result), channels, rows, columns] that each tap of the depth reads."""
    (_, channels, *_), taps = shape_of(call.args[0]), shape_of(call.args[1])[2]
    value, transposed = call.args[0], op_name(call) == _TRANSPOSED
    widths, step = _numbers(call, "padding")[::3], _numbers(call, "strides")[0]
    if transposed:
        value, (reached,) = spread_out(block, var, call, [taps])
        widths, step = list(reached), 1
    if any(widths):
        value = block.emit(var, relax.op.nn.pad(value, [0] * 4 + widths + [0] * 4))
    batch, _, _, *size = value.ty.shape.values
    depth = var.ty.shape.values[2]
    parts = []
    for tap in range(taps):
        begin = tap * _numbers(call, "dilation")[0]
        end = begin + (depth - 1) * step + 1
        part = relax.op.strided_slice(value, [2], [begin], [end], [step], assume_inbound=True)
        part = block.emit(var, relax.op.permute_dims(block.emit(var, part), _DEPTH_FIRST))
        shape = [batch * depth, channels, *size]
        parts.append(block.emit(var, relax.op.reshape(part, shape)))
    return parts[::-1] if transposed else parts


def _filters(block: Block, var: relax.Var, call: relax.Call) -> relax.Expr:
    """The weight with its taps of the depth before the channels of a group."""
    groups, (first, second, taps, *window) = int(call.attrs.groups), shape_of(call.args[1])
    if op_name(call) == _TRANSPOSED:
        shape, order = [groups, first // groups, second, taps, *window], [0, 3, 1, 2, 4, 5]
        made = [first * taps, second, *window]
    else:
        shape, order = [first, second, taps, *window], _DEPTH_FIRST
        made = [first, taps * second, *window]
    weight = block.emit(var, relax.op.reshape(call.args[1], shape))
    weight = block.emit(var, relax.op.permute_dims(weight, order))
    return block.emit(var, relax.op.reshape(weight, made))


def _numbers(call: relax.Call, name: str) -> list[int]:
    """One for each axis; of padding, what is before them and then behind."""
    numbers = [int(value) for value in getattr(call.attrs, name)]
    return numbers * (6 // len(numbers)) if name == "padding" else numbers
