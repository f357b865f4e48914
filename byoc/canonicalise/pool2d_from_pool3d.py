"""Turn pooling over three axes into pooling over two of them, and then over the third.

A maximum over a box is the maximum over its depth of maxima over its faces; so is an average, as
the same elements of every face count, and as many lines of faces for each pixel of them.
The importer also writes ONNX ``LRN`` as pooling of channels, with a window of (size, 1, 1).
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from byoc.ir.dataflow import Block, is_kernel_float, op_name, shape_of
from codegen_cc.dim import is_static

POOLS = {
    "relax.nn.avg_pool3d": relax.op.nn.avg_pool2d,
    "relax.nn.max_pool3d": relax.op.nn.max_pool2d,
}

#: Channels that do not fill a vector.
_FEW_CHANNELS = 8

#: Height and width before and after.
Sides = tuple[tuple[Any, Any], tuple[Any, Any]]

#: Depth before the channels, and back.
_DEPTH_FIRST = [0, 2, 1, 3, 4]


def pool2d_from_pool3d(block: Block) -> None:
    """Rewrite fp32 NCDHW pools.

    Faces are images of their own, and lines are beside one another, so that both are views of
    volumes whose channels lie last.
    """
    for var, call in block.calls(*POOLS):
        attrs = call.attrs
        if attrs.layout != "NCDHW" or attrs.out_layout not in ("NCDHW", ""):
            continue
        before, after = shape_of(call.args[0]), shape_of(var)
        if before is None or after is None or not is_kernel_float(var):
            continue
        padding = [int(value) for value in attrs.padding]
        if len(padding) != 6:
            continue
        batch, channels, depth, height, width = call.args[0].ty.shape.values
        sides = (height, width), tuple(var.ty.shape.values[3:])
        value = call.args[0]
        if before[3:] != after[3:] or not _is_flat(attrs, padding):
            few = is_static(before[1:3]) and before[1] < _FEW_CHANNELS
            value = (_with_channels if few else _by_faces)(block, var, call, sides, padding)
        out_height, out_width = sides[1]
        lines = relax.op.reshape(value, (batch, channels, depth, out_height * out_width))
        value = _pool(block, var, call, block.emit(var, lines), (0,), padding)
        block.replace(var, relax.op.reshape(value, var.ty.shape))


def _by_faces(
    block: Block, var: relax.Var, call: relax.Call, sides: Sides, padding: list[int]
) -> relax.Var:
    """Volumes with pooled faces, each of which is an image."""
    batch, channels, depth, *_ = call.args[0].ty.shape.values
    faces = block.emit(var, relax.op.permute_dims(call.args[0], _DEPTH_FIRST))
    images = block.emit(var, relax.op.reshape(faces, (batch * depth, channels, *sides[0])))
    pooled = _pool(block, var, call, images, (1, 2), padding)
    faces = block.emit(var, relax.op.reshape(pooled, (batch, depth, channels, *sides[1])))
    return block.emit(var, relax.op.permute_dims(faces, _DEPTH_FIRST))


def _with_channels(
    block: Block, var: relax.Var, call: relax.Call, sides: Sides, padding: list[int]
) -> relax.Var:
    """The same where all faces are the channels of one image, as vectors want more than a few."""
    batch, channels, depth, *_ = call.args[0].ty.shape.values
    image = relax.op.reshape(call.args[0], (batch, channels * depth, *sides[0]))
    pooled = _pool(block, var, call, block.emit(var, image), (1, 2), padding)
    return block.emit(var, relax.op.reshape(pooled, (batch, channels, depth, *sides[1])))


def _is_flat(attrs: Any, padding: list[int]) -> bool:
    """Whether the window is one pixel of each face."""
    sizes = [int(value) for value in attrs.pool_size]
    return sizes[1:] == [1, 1] and not any(padding[1:3] + padding[4:6])


def _pool(
    block: Block,
    var: relax.Var,
    call: relax.Call,
    image: relax.Var,
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
        image,
        pool_size=pick(attrs.pool_size),
        strides=pick(attrs.strides),
        padding=(*before, *after),
        dilation=pick(attrs.dilation),
        ceil_mode=bool(attrs.ceil_mode),
        count_include_pad=bool(attrs.count_include_pad),
    )
    return block.emit(var, pooled)
