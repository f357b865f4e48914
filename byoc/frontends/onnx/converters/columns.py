"""Images from columns of pixels, and columns of pixels that lie where offsets say.

Col2Im         y[p] = sum over taps t and windows l with p = s l + d t - pads of x[t, l]
DeformConv     y = w columns,  columns[c, t, l] = mask[t, l] x[c] at s l + d t - pads + offset[t, l]
"""

from __future__ import annotations

from math import prod

from tvm import relax, te, tirx

from byoc.frontends.onnx.converters.computed_sizes import extents_of, is_computed
from byoc.frontends.onnx.converters.node import Node
from byoc.ir.summed_windows import Windows, summed_windows
from codegen_cc.dim import is_static


def col2im(node: Node) -> relax.Expr:
    """[N, C prod(block), L] as an image [N, C, *image]; what meets in a pixel is added up."""
    shape, lengths = node.shape(), [node.shape(place) for place in (1, 2)]
    if shape is None or None in lengths or not is_static(shape[1:]):
        raise ValueError("columns of unknown shape; need a known one")
    rank = int(lengths[0][0])
    if not is_static(shape[:1]) and any(is_computed(node, place) for place in (1, 2)):
        raise ValueError("an open batch and computed sizes; need one of them to be known")
    image, block = (
        extents_of(node, node.inputs[place], rank, name)
        if is_computed(node, place)
        else [int(n) for n in node.constant(place).reshape(-1)]
        for place, name in ((1, "image"), (2, "block"))
    )
    strides, dilations = (list(node.attrs.get(n, [1] * rank)) for n in ("strides", "dilations"))
    pads = list(node.attrs.get("pads", [0] * 2 * rank))
    counts = [
        (size + pads[i] + pads[rank + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
        for i, size in enumerate(image)
    ]
    taps, windows = prod(block), prod(counts)
    channels = shape[1] // taps
    if isinstance(windows, int) and isinstance(taps, int):
        fits = shape[2] == windows and shape[1] % taps == 0
        if not fits:
            raise ValueError(f"columns {list(shape)} of blocks {block} for an image {image}")

    known = is_static([*image, *block])
    if known and str(node.dtype()).startswith("float") and min(0, *shape[1:], *image, *counts) == 0:
        sizes = Windows(image, block, counts, strides, dilations, pads)
        return summed_windows(node.emit, node.inputs[0], channels, sizes)

    def loops(x: te.Tensor) -> te.Tensor:
        inside = [te.reduce_axis((0, size), name=f"t{i}") for i, size in enumerate(block)]

        def at(n: tirx.Var, c: tirx.Var, *place: tirx.Var) -> tirx.Expr:
            moved = [p + pads[i] - dilations[i] * inside[i] for i, p in enumerate(place)]
            fits, row, column = tirx.const(True, "bool"), c, tirx.const(0, "int64")
            for axis, (m, s) in enumerate(zip(moved, strides, strict=True)):
                begins = tirx.And(tirx.floormod(m, s) == 0, m < s * counts[axis])
                fits = tirx.all(fits, m >= 0, begins)
                row = row * block[axis] + inside[axis]
                window = tirx.max(tirx.min(tirx.floordiv(m, s), counts[axis] - 1), 0)
                column = column * counts[axis] + window
            value = tirx.if_then_else(fits, x(n, row, column), tirx.const(0, x.dtype))
            return te.sum(value, axis=inside)

        batch = node.inputs[0].ty.shape.values[0]
        return te.compute([batch, channels, *image], at, name="col2im")

    return node.bb.emit_te(loops, node.inputs[0])


def deform_conv(node: Node) -> relax.Expr:
    """Of images [N, C, H, W]: columns by bilinear interpolation, and a product of each group."""
    shapes = [node.shape(place) for place in range(3)]
    if any(shape is None or not is_static(shape) for shape in shapes) or len(shapes[0]) != 4:
        raise ValueError("an image that is not of known shape [N, C, H, W]; need such a one")
    (n, channels, height, width), (filters, _, rows, columns), offsets = shapes
    group, parts = node.attrs.get("group", 1), node.attrs.get("offset_group", 1)
    strides, dilations = (node.attrs.get(name, (1, 1)) for name in ("strides", "dilations"))
    pads = node.attrs.get("pads", (0, 0, 0, 0))
    node.attrs.get("kernel_shape")
    out, taps = offsets[2:], rows * columns
    image, weight, offset = node.inputs[:3]
    bias = node.inputs[3] if len(node.inputs) > 3 else None
    mask = node.inputs[4] if len(node.inputs) > 4 else None
    if mask is None:
        mask = relax.op.ones([n, parts * taps, *out], node.dtype())

    def loops(x: te.Tensor, moved: te.Tensor, mask: te.Tensor) -> te.Tensor:
        def pixel(b: tirx.Var, c: tirx.Var, y: tirx.Expr, z: tirx.Expr) -> tirx.Expr:
            inside = tirx.all(y >= 0, y < height, z >= 0, z < width)
            return tirx.if_then_else(inside, x(b, c, y, z), tirx.const(0, x.dtype))

        def at(b: tirx.Var, c: tirx.Var, t: tirx.Var, i: tirx.Var, j: tirx.Var) -> tirx.Expr:
            part = tirx.floordiv(c, channels // parts)
            first = (part * taps + t) * 2
            row, column = tirx.floordiv(t, columns), tirx.floormod(t, columns)
            y = i * strides[0] + row * dilations[0] - pads[0]
            z = j * strides[1] + column * dilations[1] - pads[1]
            y = tirx.Cast(x.dtype, y) + moved(b, first, i, j)
            z = tirx.Cast(x.dtype, z) + moved(b, first + 1, i, j)
            top, left = tirx.floor(y), tirx.floor(z)
            down, right = y - top, z - left
            top, left = tirx.Cast("int64", top), tirx.Cast("int64", left)
            one = tirx.const(1, x.dtype)
            value = (
                (one - down) * (one - right) * pixel(b, c, top, left)
                + (one - down) * right * pixel(b, c, top, left + 1)
                + down * (one - right) * pixel(b, c, top + 1, left)
                + down * right * pixel(b, c, top + 1, left + 1)
            )
            return value * mask(b, part * taps + t, i, j)

        return te.compute([n, channels, taps, *out], at, name="deformed")

    found = node.bb.emit_te(loops, image, offset, node.emit(mask))
    inner = channels // group * taps
    found = node.emit(relax.op.reshape(found, [n, group, inner, out[0] * out[1]]))
    weight = node.emit(relax.op.reshape(weight, [group, filters // group, inner]))
    y = node.emit(relax.op.reshape(relax.op.matmul(weight, found), [n, filters, *out]))
    if bias is None:
        return y
    return relax.op.add(y, relax.op.reshape(bias, [1, filters, 1, 1]))
