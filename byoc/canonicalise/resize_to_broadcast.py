"""Turn nearest-neighbour enlargement by whole numbers into ``broadcast_to``.

    y[n, c, s i + a, t j + b] = x[n, c, i, j],   0 <= a < s,   0 <= b < t

is a broadcast along two new axes, and moves data without arithmetic on coordinates.
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, Constant, op_name, shape_of
from byoc.ir.elementwise import SIMPLE_UNARY
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


#: Operators of an image and a number, or a number for each channel.
_BINARY = (
    *("relax.add", "relax.subtract", "relax.multiply", "relax.divide"),
    *("relax.maximum", "relax.minimum"),
)


def pixels_before_enlarging(block: Block) -> None:
    """Compute functions of the pixels of an enlarged image on the small one.

        f(reshape(broadcast_to(reshape(x)))) = reshape(broadcast_to(reshape(f(x))))

    There are fewer, a convolution in front can end in the function, and what is enlarged is copied.
    """
    for var, call in block.calls(*SIMPLE_UNARY, *_BINARY):
        place = _only_image(call)
        steps = [] if place is None else _enlarging(block, call.args[place])
        if not steps or shape_of(var) != shape_of(steps[0]):
            continue
        joined, repeated, spread = steps
        operands = [spread.args[0] if i == place else x for i, x in enumerate(call.args)]
        small = relax.Call(call.op, operands, call.attrs, call.ty_args)
        wide = relax.op.reshape(block.emit(var, small), spread.args[1])
        again = relax.op.broadcast_to(block.emit(var, wide), repeated.args[1])
        block.replace(var, relax.op.reshape(block.emit(var, again), joined.args[1]))


def _only_image(call: relax.Call) -> int | None:
    """Which operand it is whose others are the same for all pixels; None where there is none."""
    if op_name(call) in SIMPLE_UNARY:
        return 0
    images = [i for i, x in enumerate(call.args) if not isinstance(x, Constant)]
    others = [shape_of(x) for x in call.args if isinstance(x, Constant)]
    same_everywhere = all(len(s) <= 4 and all(e == 1 for e in s[-2:]) for s in others)
    return images[0] if len(images) == 1 and same_everywhere else None


def _enlarging(block: Block, expr: relax.Expr) -> list[relax.Call]:
    """The calls that enlarge an image, the last one first, if nothing else reads their values."""
    steps: list[relax.Call] = []
    for name in ("relax.reshape", "relax.broadcast_to", "relax.reshape"):
        call = block.call(expr, name) if block.is_private(expr) else None
        if call is None:
            return []
        steps.append(call)
        expr = call.args[0]
    source, middle, result = map(shape_of, (expr, steps[2], steps[0]))
    if source is None or middle is None or result is None:
        return []
    repeats = (len(source), len(middle), len(result)) == (4, 6, 4) and middle[3] == middle[5] == 1
    return steps if repeats and middle == (*source[:3], 1, source[3], 1) else []
