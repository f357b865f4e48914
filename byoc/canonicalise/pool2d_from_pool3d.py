"""Turn average pooling over one of three axes into pooling over one of two.

The importer writes ONNX ``LRN`` as pooling of channels: ``avg_pool3d`` with a window of (size, 1,
1). Height and width can then be one axis.
"""

from __future__ import annotations

from tvm import relax

from ..dataflow import Block, dtype_of, shape_of


def pool2d_from_pool3d(block: Block) -> None:
    """Rewrite fp32 NCDHW average pools of static shape that leave height and width alone."""
    for var, call in block.calls("relax.nn.avg_pool3d"):
        attrs, shape = call.attrs, shape_of(call.args[0])
        if attrs.layout != "NCDHW" or attrs.out_layout not in ("NCDHW", ""):
            continue
        if shape is None or dtype_of(var) != "float32" or attrs.ceil_mode:
            continue
        size, strides, dilation, padding = (
            [int(value) for value in values]
            for values in (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding)
        )
        flat = size[1:] == strides[1:] == [1, 1] and len(padding) == 6
        if not flat or padding[1:3] + padding[4:6] != [0, 0, 0, 0]:
            continue
        batch, channels, depth, height, width = shape
        rows = (batch, channels, depth, height * width)
        image = block.emit(var, relax.op.reshape(call.args[0], rows))
        pooled = block.emit(
            var,
            relax.op.nn.avg_pool2d(
                image,
                pool_size=(size[0], 1),
                strides=(strides[0], 1),
                padding=(padding[0], 0, padding[3], 0),
                dilation=(dilation[0], 1),
                count_include_pad=bool(attrs.count_include_pad),
            ),
        )
        block.replace(var, relax.op.reshape(pooled, shape_of(var)))
