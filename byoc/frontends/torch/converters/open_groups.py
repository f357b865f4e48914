"""Convolutions of as many groups as a call says: one for each image of a batch, of its own weight.

Windows of the image are laid out as columns, which each group multiplies by its matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from tvm import relax

from byoc.frontends.torch.converters.movement import part_of
from byoc.frontends.torch.values import Graph, Value
from codegen_cc.region.relax_dims import relax_dims

op = relax.op


def convolution_of_open_groups(
    g: Graph,
    x: relax.Expr,
    w: relax.Expr,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: Value,
) -> relax.Expr:
    """``x`` [images, groups * channels, ...] by ``w`` [groups * outputs, channels, ...]."""
    filters, channels, *taps = w.ty.shape.values
    each = _of_each(filters, groups)
    if each is None or any(not hasattr(size, "value") for size in (channels, *taps)):
        shape = f"[{filters}, {channels}, ...]"
        raise ValueError(f"{groups} groups of a weight {shape}; need fixed sizes of each group")
    w = g.with_extents(w, {0: groups * each})
    spatial, sizes = len(taps), g.shape[-len(taps) :]
    widths = [width for side in padding for width in (side, side)]
    if any(widths):
        x = g.emit(op.nn.pad(x, [0] * 4 + widths))
    windows = []
    for place in product(*(range(int(n)) for n in taps)):
        part = x
        for axis in range(spatial):
            begin, size = place[axis] * dilation[axis], sizes[axis]
            end = begin + (size - 1) * stride[axis] + 1
            part = g.emit(part_of(part, axis + 2, begin, end, stride[axis]))
        windows.append(g.emit(op.expand_dims(part, 2)))
    rows = int(channels) * prod(int(n) for n in taps)
    pixels = sizes[0]
    for size in sizes[1:]:
        pixels = pixels * size
    columns = windows[0] if len(windows) == 1 else g.emit(op.concat(windows, 2))
    images = x.ty.shape.values[0]
    columns = g.emit(op.reshape(columns, [images, groups, rows, pixels]))
    matrices = g.emit(op.reshape(w, [1, groups, each, rows]))
    made = g.emit(op.matmul(matrices, columns))
    return op.reshape(made, [images, groups * each, *sizes])


def _of_each(filters: relax.Expr, groups: Value) -> int | None:
    """How many filters a group has, where PyTorch may know the number of groups by two symbols."""
    (count,), (outputs,) = relax_dims([groups]), relax_dims([filters])
    each = outputs / count
    if not each.is_Integer:
        each = outputs.as_coeff_Mul()[0] / count.as_coeff_Mul()[0]
    return int(each) if each.is_Integer and not outputs.is_Integer else None
