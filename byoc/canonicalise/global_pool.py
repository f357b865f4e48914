"""Turn adaptive average pooling into a mean, or into pooling of images.

To one element per axis it is the mean over all; where an image's extents are multiples of the
result's, all windows have one size, the quotient, and do not overlap. Lines are images of one row.
Of volumes, the means of windows of depth come first, then those of planes: all windows of one
window of depth are equally deep, so that the mean of their means is the mean.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from byoc.ir.dataflow import Block, is_kernel_float, op_name, shape_of, static_shape_of

LAYOUTS = {
    "relax.nn.adaptive_avg_pool1d": "NCW",
    "relax.nn.adaptive_avg_pool2d": "NCHW",
    "relax.nn.adaptive_avg_pool3d": "NCDHW",
}

_AVERAGE = {
    1: relax.op.nn.avg_pool1d,
    2: relax.op.nn.avg_pool2d,
    3: relax.op.nn.avg_pool3d,
}

#: Axes of a volume with the depth last, and back.
_DEPTH_LAST, _DEPTH_BACK = [0, 1, 3, 4, 2], [0, 1, 4, 2, 3]


def mean_from_global_pool(block: Block) -> None:
    """Rewrite pools whose windows are all alike, and those of lines and volumes."""
    for var, call in block.calls(*LAYOUTS):
        layout = LAYOUTS[op_name(call)]
        size = call.attrs.output_size
        if call.attrs.layout != layout or call.attrs.out_layout not in (layout, "") or not size:
            continue
        axes = list(range(2, len(layout)))
        extents = [int(extent) for extent in size]
        if shape_of(call.args[0]) is None:
            continue
        if extents == [1] * len(axes):
            block.replace(var, relax.op.mean(call.args[0], axis=axes, keepdims=True))
        elif is_kernel_float(var):
            _windows(block, var, call.args[0], extents)


def _windows(block: Block, var: relax.Var, value: relax.Expr, extents: list[int]) -> None:
    kernel = _equal_windows(value, extents)
    if kernel is not None and set(kernel) == {1}:
        block.alias(var, value)
    elif kernel is not None:
        block.replace(var, _AVERAGE[len(kernel)](value, kernel, kernel))
    elif len(extents) == 1:
        batch, channels, length = value.ty.shape.values
        value = _pooled(block, var, value, [batch, channels, 1, length], [1, *extents])
        block.replace(var, relax.op.reshape(value, var.ty.shape))
    elif len(extents) == 3:
        value = _by_depth_and_planes(block, var, value, extents)
        block.replace(var, relax.op.reshape(value, var.ty.shape))


def _by_depth_and_planes(
    block: Block, var: relax.Var, value: relax.Expr, extents: list[int]
) -> relax.Expr:
    batch, channels, depth, height, width = value.ty.shape.values
    count, *of_planes = extents
    value = block.emit(var, relax.op.permute_dims(value, _DEPTH_LAST))
    lines = [batch, channels * height * width, depth, 1]
    value = _pooled(block, var, value, lines, [count, 1])
    value = block.emit(var, relax.op.reshape(value, [batch, channels, height, width, count]))
    value = block.emit(var, relax.op.permute_dims(value, _DEPTH_BACK))
    return _pooled(block, var, value, [batch, channels * count, height, width], of_planes)


def _pooled(
    block: Block, var: relax.Var, value: relax.Expr, shape: list[Any], extents: list[int]
) -> relax.Expr:
    """The same elements as an image of that shape, and the means of its windows."""
    image = block.emit(var, relax.op.reshape(value, shape))
    kernel = _equal_windows(image, extents)
    if kernel == (1, 1):
        return image
    if kernel is not None:
        return block.emit(var, relax.op.nn.avg_pool2d(image, kernel, kernel))
    return block.emit(var, relax.op.nn.adaptive_avg_pool2d(image, extents))


def _equal_windows(image: relax.Expr, extents: list[int]) -> tuple[int, ...] | None:
    """Extents of all windows, where they are alike."""
    shape = static_shape_of(image)
    if shape is None or any(n % m for n, m in zip(shape[2:], extents, strict=True)):
        return None
    return tuple(n // m for n, m in zip(shape[2:], extents, strict=True))
