"""Write convolutions of images with a computed weight as matrix products, where that is faster.

That of a modulated convolution (StyleGAN2), or one that a network mixes for each image (CondConv),
is a result.  Kernels of convolutions pack it at each run, which takes longer than what an image of
few pixels does:

    y[n, g, o, p] = sum_k w[g, o, k] patches[n, g, k, p],   k = (channel, tap), p = (row, column)

A transposed convolution of fixed sizes is a product of its pixels, whose windows are added up. Of
open sizes it has zeros between the elements of its image, and its taps from the last to the first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from byoc.canonicalise.computed_convolutions import computed_convolutions
from byoc.canonicalise.computed_volumes import computed_volumes
from byoc.canonicalise.transposed_volumes import spread_out
from byoc.ir.dataflow import Block, op_name, shape_of
from byoc.ir.summed_windows import Windows, summed_windows
from codegen_cc.dim import Dim, is_static, product

#: Floats of patches, 64 MB, beyond which taps are multiplied one by one.
_MOST_PATCHES = 1 << 24

_TRANSPOSED = "relax.nn.conv2d_transpose"

Shape = tuple[Dim, ...]


def nobody_computes(call: relax.Call) -> bool:
    """The answer of those who have no kernel for a computed weight."""
    del call
    return False


def computed_filters_unless(computed: Callable[[relax.Call], bool]) -> Callable[[Block], None]:
    """The rule for all but those that a library of the user's computes as they are."""

    @wraps(computed_filters)
    def rule(block: Block) -> None:
        computed_filters(block, computed)

    return rule


def computed_filters(
    block: Block, computed: Callable[[relax.Call], bool] = nobody_computes
) -> None:
    """Rewrite fp32 convolutions of images, and of volumes, whose weight is no constant."""
    computed_volumes(block, computed)
    for var, call, shapes in computed_convolutions(block, "relax.nn.conv2d", "HW", computed):
        groups, transposed = int(call.attrs.groups), op_name(call) == _TRANSPOSED
        if not transposed and _is_worth_packing(shapes[1], shapes[2], groups):
            continue
        fixed = transposed and is_static([*shapes[0][2:], *shapes[2][2:]])
        some = fixed and 0 not in (*shapes[0][1:], *shapes[2][1:])
        block.replace(var, (_windows if some else _product)(block, var, call))


def _is_worth_packing(weight: Shape, result: Shape, groups: int) -> bool:
    """Whether a weight is copied for more pixels of the result than it has outputs in a group.

    Patches of points are the image as it lies.
    """
    pixels, outputs = product([result[0], *result[2:]]), weight[0] // groups
    return product(weight[2:]) > 1 and (not is_static([pixels]) or pixels >= outputs)


def _product(block: Block, var: relax.Var, call: relax.Call) -> relax.Expr:
    groups, (_, channels, *_) = int(call.attrs.groups), shape_of(call.args[0])
    batch, *_ = call.args[0].ty.shape.values
    _, outputs, rows, columns = var.ty.shape.values
    filters, parts = _filters(block, var, call), _patches(block, var, call)
    outside, inner, pixels = [groups] if groups > 1 else [], channels // groups, rows * columns
    if len(parts) > 1 and _is_large(var, channels * len(parts)):
        found: relax.Expr | None = None
        for tap, part in enumerate(parts):
            weight = relax.op.strided_slice(filters, [len(outside) + 2], [tap], [tap + 1])
            weight = block.emit(var, weight)
            weight = block.emit(var, relax.op.reshape(weight, [*outside, outputs // groups, inner]))
            part = block.emit(var, relax.op.reshape(part, [batch, *outside, inner, pixels]))
            one = block.emit(var, relax.op.matmul(weight, part))
            found = one if found is None else block.emit(var, relax.op.add(found, one))
    else:
        whole = block.emit(var, relax.op.concat(parts, 2)) if len(parts) > 1 else parts[0]
        shape = [batch, *outside, inner * len(parts), pixels]
        whole = block.emit(var, relax.op.reshape(whole, shape))
        shape = [*outside, outputs // groups, inner * len(parts)]
        filters = block.emit(var, relax.op.reshape(filters, shape))
        found = block.emit(var, relax.op.matmul(filters, whole))
    return relax.op.reshape(found, [batch, outputs, rows, columns])


def _is_large(var: relax.Var, rows: int) -> bool:
    """Whether patches take more memory than their product is worth."""
    batch, _, *sizes = shape_of(var)
    return is_static([batch, *sizes]) and prod([batch, *sizes]) * rows > _MOST_PATCHES


def _windows(block: Block, var: relax.Var, call: relax.Call) -> relax.Expr:
    """A transposed convolution: [groups, (outputs, tap), channels] by [batch, groups, channels,
    pixels]."""
    (image, weight), attrs, groups = call.args, call.attrs, int(call.attrs.groups)
    _, channels, *counts = shape_of(image)
    _, second, *taps = shape_of(weight)
    batch, inner = image.ty.shape.values[0], channels // groups
    outside = [groups] if groups > 1 else []
    weight = block.emit(var, relax.op.reshape(weight, [*outside, inner, second * prod(taps)]))
    order = [0, 2, 1] if groups > 1 else [1, 0]
    weight = block.emit(var, relax.op.permute_dims(weight, order))
    pixels = block.emit(var, relax.op.reshape(image, [batch, *outside, inner, prod(counts)]))
    found = block.emit(var, relax.op.matmul(weight, pixels))
    steps, gaps = ([int(n) for n in values] for values in (attrs.strides, attrs.dilation))
    sizes = Windows(list(shape_of(var)[2:]), taps, counts, steps, gaps, _sides(attrs.padding))
    return summed_windows(partial(block.emit, var), found, second * groups, sizes)


def _filters(block: Block, var: relax.Var, call: relax.Call) -> relax.Expr:
    """[groups, outputs of a group, channels, taps], or without groups where there is one."""
    groups, weight = int(call.attrs.groups), call.args[1]
    first, second, *taps = shape_of(weight)
    outputs = first // groups
    if op_name(call) == _TRANSPOSED:  # [(g, c), o, taps]
        split = block.emit(var, relax.op.reshape(weight, [groups, first // groups, second, *taps]))
        weight = block.emit(var, relax.op.permute_dims(split, [0, 2, 1, 3, 4]))
        outputs, second = second, first // groups
    outside = [groups] if groups > 1 else []
    shape = [*outside, outputs, second, prod(taps)]
    return block.emit(var, relax.op.reshape(weight, shape))


def _patches(block: Block, var: relax.Var, call: relax.Call) -> list[relax.Expr]:
    """[batch, channels, 1, rows, columns] of the image for each tap."""
    value, widths, strides = _prepared(block, var, call)
    taps, dilation = shape_of(call.args[1])[2:], [int(d) for d in call.attrs.dilation]
    batch, channels, *_ = call.args[0].ty.shape.values
    rows, columns = var.ty.shape.values[2:]
    if any(widths):
        value = block.emit(var, relax.op.nn.pad(value, [0, 0, 0, 0, *widths]))
    parts = []
    for tap in np.ndindex(*taps):
        begins = [int(t) * d for t, d in zip(tap, dilation, strict=True)]
        sizes = zip(begins, (rows, columns), strides, strict=True)
        ends = [begin + (size - 1) * step + 1 for begin, size, step in sizes]
        part = relax.op.strided_slice(value, [2, 3], begins, ends, strides, assume_inbound=True)
        shape = [batch, channels, 1, rows, columns]
        parts.append(block.emit(var, relax.op.reshape(block.emit(var, part), shape)))
    if op_name(call) == _TRANSPOSED:
        parts.reverse()
    return parts


def _prepared(
    block: Block, var: relax.Var, call: relax.Call
) -> tuple[relax.Expr, list[int], list[int]]:
    """The image, zeros around it as (top, bottom, left, right), and the strides of its windows."""
    if op_name(call) == _TRANSPOSED:
        value, widths = spread_out(block, var, call, shape_of(call.args[1])[2:])
        return value, [width for pair in widths for width in pair], [1, 1]
    padding = _sides(call.attrs.padding)
    steps = [int(step) for step in call.attrs.strides]
    return call.args[0], [padding[side] for side in (0, 2, 1, 3)], steps


def _sides(padding: Any) -> list[int]:
    """Top, left, bottom and right."""
    sides = [int(side) for side in padding]
    return sides * (4 // len(sides))
