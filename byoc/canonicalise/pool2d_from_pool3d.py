"""Turn pooling over three axes into pooling over two of them, and then over the third.

A maximum over a box is the maximum over its depth of maxima over its faces; so is an average, if
the number of elements that count is the same for every face: if padding counts, or there is none.
The importer also writes ONNX ``LRN`` as pooling of channels, with a window of (size, 1, 1).
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from byoc.ir.dataflow import Block, is_kernel_float, op_name, static_shape_of

POOLS = {
    "relax.nn.avg_pool3d": relax.op.nn.avg_pool2d,
    "relax.nn.max_pool3d": relax.op.nn.max_pool2d,
}


def pool2d_from_pool3d(block: Block) -> None:
    """Rewrite fp32 NCDHW pools of static shape."""
    for var, call in block.calls(*POOLS):
        attrs, shape = call.attrs, static_shape_of(call.args[0])
        if attrs.layout != "NCDHW" or attrs.out_layout not in ("NCDHW", ""):
            continue
        if shape is None or static_shape_of(var) is None or not is_kernel_float(var):
            continue
        padding = [int(value) for value in attrs.padding]
        if len(padding) != 6 or not _is_separable(call, padding):
            continue
        batch, channels, depth, height, width = shape
        out_height, out_width = static_shape_of(var)[3:]
        value = call.args[0]
        if (out_height, out_width) != (height, width) or not _is_flat(attrs, padding):
            faces = relax.op.reshape(value, (batch, channels * depth, height, width))
            value = _pool(block, var, call, faces, (1, 2), padding)
        lines = relax.op.reshape(value, (batch, channels, depth, out_height * out_width))
        value = _pool(block, var, call, lines, (0,), padding)
        block.replace(var, relax.op.reshape(value, static_shape_of(var)))


def _is_flat(attrs: Any, padding: list[int]) -> bool:
    """Whether the window is one pixel of each face."""
    sizes = [int(value) for value in attrs.pool_size]
    return sizes[1:] == [1, 1] and not any(padding[1:3] + padding[4:6])


def _is_separable(call: relax.Call, padding: list[int]) -> bool:
    if op_name(call) == "relax.nn.max_pool3d":
        return True
    return not call.attrs.ceil_mode and (bool(call.attrs.count_include_pad) or not any(padding))


def _pool(
    block: Block,
    var: relax.Var,
    call: relax.Call,
    image: relax.Expr,
    axes: tuple[int, ...],
    padding: list[int],
) -> relax.Var:
    """Pool an image over its last axes; the window is that of ``axes`` of the box, then 1."""
    attrs = call.attrs

    def pick(values: Any) -> tuple[int, int]:
        numbers = [int(values[axis]) for axis in axes]
        return (*numbers, 1)[:2]

    before, after = ([*(padding[axis + side] for axis in axes), 0][:2] for side in (0, 3))
    pooled = POOLS[op_name(call)](
        block.emit(var, image),
        pool_size=pick(attrs.pool_size),
        strides=pick(attrs.strides),
        padding=(*before, *after),
        dilation=pick(attrs.dilation),
        ceil_mode=bool(attrs.ceil_mode),
        count_include_pad=bool(attrs.count_include_pad),
    )
    return block.emit(var, pooled)
