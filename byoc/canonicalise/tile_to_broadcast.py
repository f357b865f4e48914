"""Turn ``tile`` and ``repeat`` into a broadcast along new axes.

tile(x, r)[k n + i]   = x[i]      x as [1, n], broadcast to [r, n]
repeat(x, r)[i r + k] = x[i]      x as [n, 1], broadcast to [n, r]
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, op_name, static_shape_of


def tile_to_broadcast(block: Block) -> None:
    """Rewrite tiles and repeats of static shape."""
    for var, call in block.calls("relax.tile", "relax.repeat"):
        shape, result = static_shape_of(call.args[0]), static_shape_of(var)
        if shape is None or result is None:
            continue
        apart: list[int] = []
        spread: list[int] = []
        if op_name(call) == "relax.tile":
            counts = [int(count) for count in call.attrs.repeats]
            counts = [1] * (len(result) - len(counts)) + counts
            extents = [1] * (len(result) - len(shape)) + list(shape)
            for count, extent in zip(counts, extents, strict=True):
                apart += [1, extent] if count != 1 else [extent]
                spread += [count, extent] if count != 1 else [extent]
        else:
            if call.attrs.axis is None:
                continue
            axis, count = int(call.attrs.axis) % len(shape), int(call.attrs.repeats)
            apart = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
            spread = [*shape[: axis + 1], count, *shape[axis + 1 :]]
        wide = block.emit(var, relax.op.reshape(call.args[0], apart))
        copied = block.emit(var, relax.op.broadcast_to(wide, spread))
        block.replace(var, relax.op.reshape(copied, result))
