"""Turn nearest-neighbour enlargement by whole numbers into ``broadcast_to``.

    y[n, c, s i + a, t j + b] = x[n, c, i, j],   0 <= a < s,   0 <= b < t

is a broadcast along two new axes, and moves data without arithmetic on coordinates.
"""

from __future__ import annotations

from tvm import relax

from ..dataflow import Block, shape_of

#: Coordinate transformation and rounding that pick pixel ``i // s`` for every whole scale ``s``:
#: floor(i / s), and the pixel whose centre is nearest.
REPEATING = {
    ("asymmetric", "floor"),
    ("half_pixel", "round"),
    ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"),
}


def resize_to_broadcast(block: Block) -> None:
    """Rewrite NCHW resizes of static shape that repeat every pixel."""
    for var, call in block.calls("relax.image.resize2d"):
        attrs, source = call.attrs, shape_of(call.args[0])
        mode = (attrs.coordinate_transformation_mode, attrs.rounding_method)
        if attrs.method != "nearest_neighbor" or mode not in REPEATING:
            continue
        if attrs.layout != "NCHW" or source is None or shape_of(var) is None:
            continue
        batch, channels, height, width = source
        down, across = (shape_of(var)[axis] // source[axis] for axis in (2, 3))
        if shape_of(var) != (batch, channels, height * down, width * across):
            continue
        spread = relax.op.reshape(call.args[0], (batch, channels, height, 1, width, 1))
        repeated = relax.op.broadcast_to(
            block.emit(var, spread), (batch, channels, height, down, width, across)
        )
        block.replace(var, relax.op.reshape(block.emit(var, repeated), var.ty.shape))
