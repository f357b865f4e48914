"""Add the mask of shifted windows to scores as they are, where exporters reshape them for it.

    softmax(reshape(reshape(scores, [B, W, H, S, T]) + mask, [B W, H, S, T]))
        =  softmax(scores + mask')        mask' [B W, H, S, T], 1 along axes where it is the same

Swin Transformers write the attention of W windows so, whose mask is a constant [1, W, 1, S, T].
Exact. Now attention is in reach, and the mask of that of the bias of positions.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.ir.dataflow import (
    Block,
    array_of,
    constant,
    dtype_of,
    is_kernel_float,
    shape_of,
    static_shape_of,
)
from codegen_cc.dim import product

#: Elements of a mask with all axes of its scores at most, beyond which reshapes are cheaper.
_MOST = 1 << 24


def mask_over_reshape(block: Block) -> None:
    """Rewrite masks between two reshapes that undo one another, fp32, of known shape."""
    for _, softmax in block.calls("relax.nn.softmax"):
        var = softmax.args[0]
        back = block.call(var, "relax.reshape")
        if back is None or not block.is_private(var) or not is_kernel_float(var):
            continue
        added = block.call(back.args[0], "relax.add")
        if added is None or not block.is_private(back.args[0]):
            continue
        for side, other in zip(added.args, reversed(added.args), strict=True):
            there, values = block.call(side, "relax.reshape"), array_of(other)
            if there is None or values is None or not block.is_private(side):
                continue
            wide, shape = static_shape_of(side), static_shape_of(var)
            if shape is None or wide is None or shape_of(there.args[0]) != shape:
                continue
            if shape_of(back.args[0]) != wide or product(shape) > _MOST:
                continue
            mask = constant(_narrow(values, wide, shape), dtype_of(var))
            block.replace(var, relax.op.add(there.args[0], mask))
            break


def _narrow(values: np.ndarray, wide: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Broadcast to ``wide``, reshape to ``shape``, and keep one slice of axes along which all are.

    Slices are compared bit by bit.
    """
    mask = np.ascontiguousarray(np.broadcast_to(values, wide)).reshape(shape)
    bits = mask.view(f"u{mask.itemsize}")
    for axis in range(mask.ndim):
        first = bits.take([0], axis)
        if bits.shape[axis] > 1 and (bits == first).all():
            bits = first
    return np.ascontiguousarray(bits).view(mask.dtype)
