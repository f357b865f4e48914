"""Turn nearest-neighbour enlargement by whole numbers into ``broadcast_to``.

    y[n, c, s i + a, t j + b] = x[n, c, i, j],   0 <= a < s,   0 <= b < t

is a broadcast along two new axes, and moves data without arithmetic on coordinates.
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, shape_of
from codegen_cc.dim import normal, same

#: Coordinate transformation and rounding that pick pixel ``i // s`` for every whole scale ``s``:
#: floor(i / s), and the pixel whose centre is nearest.
REPEATING = {
    ("asymmetric", "floor"),
    ("half_pixel", "round"),
    ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"),
}


def resize_to_broadcast(block: Block) -> None:
    """Rewrite NCHW resizes that repeat every pixel a fixed number of times."""
    for var, call in block.calls("relax.image.resize2d"):
        attrs, source, result = call.attrs, shape_of(call.args[0]), shape_of(var)
        mode = (attrs.coordinate_transformation_mode, attrs.rounding_method)
        if attrs.method != "nearest_neighbor" or mode not in REPEATING:
            continue
        if attrs.layout != "NCHW" or source is None or result is None or 0 in source:
            continue
        down, across = (normal(result[axis] // source[axis]) for axis in (2, 3))
        # A symbolic size may still be a fixed multiple of a symbolic extent.
        whole = isinstance(down, int) and isinstance(across, int)
        if not whole or not all(map(same, result[2:], (source[2] * down, source[3] * across))):
            continue
        batch, channels, height, width = call.args[0].ty.shape.values
        spread = relax.op.reshape(call.args[0], (batch, channels, height, 1, width, 1))
        repeated = relax.op.broadcast_to(
            block.emit(var, spread), (batch, channels, height, down, width, across)
        )
        block.replace(var, relax.op.reshape(block.emit(var, repeated), var.ty.shape))
