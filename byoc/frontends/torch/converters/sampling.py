"""Images read at places that a grid names, and places of the greatest elements of windows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import prod

import numpy as np
import torch
from tvm import relax

from byoc.frontends.torch.sizes import known_extents
from byoc.frontends.torch.values import Graph, Value
from byoc.ir.dataflow import static_shape_of

op = relax.op

BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)


def places_of_greatest(
    g: Graph,
    image: relax.Expr,
    values: relax.Expr,
    windows: Sequence[tuple[int, int, int, int]],
    ends: Sequence[int],
) -> relax.Expr:
    """Where in its image, counted row by row, the greatest element of each window stands, int64.

    image [N, C, ...], values [N, C, ...] what the windows gave; ``windows`` are taps, step, gap and
    padding of each axis. The first of equal elements, or the last NaN, as in PyTorch.
    """
    shape, found = static_shape_of(image), static_shape_of(values)
    if shape is None or found is None:
        raise ValueError("places of an image of unknown size; need a fixed one")
    sizes, counts = shape[2:], found[2:]
    widths = [0, 0, 0, 0]
    for (_, _, _, pad), end in zip(windows, ends, strict=True):
        widths += [pad, end]
    if any(widths):
        image = g.emit(op.nn.pad(image, widths, pad_value=-np.inf))
    axes = list(range(2, len(shape)))
    taken = []
    for tap in product(*(range(taps) for taps, *_ in windows)):
        begins = [at * gap for at, (_, _, gap, _) in zip(tap, windows, strict=True)]
        steps = [step for _, step, _, _ in windows]
        stops = [b + (n - 1) * s + 1 for b, n, s in zip(begins, counts, steps, strict=True)]
        part = g.emit(op.strided_slice(image, axes, begins, stops, steps))
        taken.append(g.emit(op.expand_dims(part, 2)))
    first = op.argmax(g.emit(op.concat(taken, 2)), 2)
    last = op.argmax(g.emit(op.concat(taken[::-1], 2)), 2)
    last = op.subtract(relax.const(len(taken) - 1, "int64"), g.emit(last))
    chosen = g.emit(op.where(g.emit(op.isnan(values)), g.emit(last), g.emit(first)))
    outputs = prod(counts)
    chosen = g.emit(op.multiply(chosen, relax.const(outputs, "int64")))
    here = torch.arange(outputs).reshape(counts)
    index = g.emit(op.add(chosen, g.tensor(here)))
    return op.take(g.tensor(_places_of_taps(sizes, counts, windows)), index, 0)


def _places_of_taps(
    sizes: Sequence[int], counts: Sequence[int], windows: Sequence[tuple[int, int, int, int]]
) -> torch.Tensor:
    """[taps x windows]: a tap's place in the image; of one in the padding, the window's first."""
    along = []
    for size, count, (taps, step, gap, pad) in zip(sizes, counts, windows, strict=True):
        at = torch.arange(taps)[:, None] * gap + torch.arange(count) * step - pad
        # The first tap in the image, which each window has: padding is half a window at most.
        at = torch.where(at < 0, at % gap, at)
        along.append(torch.where(at >= size, at[:1], at))
    rank, total = len(sizes), torch.zeros(1, dtype=torch.int64)
    for axis, at in enumerate(along):
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = at.shape
        total = total * sizes[axis] + at.reshape(shape)
    return total.flatten()


def grid_sample(
    g: Graph,
    input: Value,
    grid: Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> relax.Expr:
    """An image [N, C, H, W] at places that a grid [N, H', W', 2] of x and y from -1 to 1 names, or
    a volume [N, C, D, H, W] by a grid [N, D', H', W', 3] of x, y, z."""
    image, grid = g.tensor(input), g.tensor(grid)
    spatial = image.ty.ndim - 2
    if spatial != 2:
        if interpolation_mode == BICUBIC or None in (
            known_extents(image, 1),
            known_extents(grid, 1),
        ):
            raise ValueError("bicubic sampling of a volume, or one of unknown size; need neither")
        return _sampled(g, image, grid, interpolation_mode, padding_mode, align_corners)
    return op.image.grid_sample(
        image,
        op.permute_dims(grid, [0, 3, 1, 2]),
        ("bilinear", "nearest", "bicubic")[interpolation_mode],
        "NCHW",
        ("zeros", "border", "reflection")[padding_mode],
        align_corners,
    )


def _sampled(
    g: Graph, image: relax.Expr, grid: relax.Expr, mode: int, padding_mode: int, align_corners: bool
) -> relax.Expr:
    """Each point of a volume is a weighted sum of its neighbours' channels, side by side."""
    images, (channels, *sizes) = image.ty.shape.values[0], known_extents(image, 1)
    spatial, wanted = len(sizes), list(grid.ty.shape.values)[:-1]
    lines = op.permute_dims(image, [0, *range(2, spatial + 2), 1])
    lines = g.emit(op.reshape(g.emit(lines), [images * prod(sizes), channels]))
    choices = []
    for axis, size in enumerate(sizes):  # the grid's last axis is the other way round
        place = spatial - 1 - axis
        at = g.emit(op.strided_slice(grid, [spatial + 1], [place], [place + 1]))
        at = _within(g, _pixels(g, at, size, align_corners), size, padding_mode, align_corners)
        choices.append(_neighbours(g, at, size, mode))
    start = op.arange(0, images, 1, "int64")
    start = g.emit(op.reshape(g.emit(start), [images, *[1] * (spatial + 1)]))
    points = reduce(lambda a, b: a * b, wanted)
    total = None
    for corner in product(*choices):
        index, weight, inside = start, None, None
        for size, (place, share, there) in zip(sizes, corner, strict=True):
            index = g.emit(op.add(op.multiply(index, relax.const(size, "int64")), place))
            weight = _product(g, weight, share)
            inside = there if inside is None else g.emit(op.logical_and(inside, there))
        picked = g.emit(op.take(lines, g.emit(op.reshape(index, [points])), 0))
        # What is outside counts nothing, even where the place is no number.
        weight = g.tensor(1.0) if weight is None else weight
        weight = g.emit(op.where(inside, weight, g.tensor(0.0)))
        part = g.emit(op.multiply(picked, g.emit(op.reshape(weight, [points, 1]))))
        total = part if total is None else g.emit(op.add(total, part))
    made = g.emit(op.reshape(total, [*wanted, channels]))
    return op.permute_dims(made, [0, spatial + 1, *range(1, spatial + 1)])


def _product(g: Graph, left: relax.Expr | None, right: relax.Expr | None) -> relax.Expr | None:
    if left is None or right is None:
        return left if right is None else right
    return g.emit(op.multiply(left, right))


def _pixels(g: Graph, at: relax.Expr, size: int, align_corners: bool) -> relax.Expr:
    """From -1 to 1 to pixels: -1 and 1 are the centres of the outermost ones, or their borders."""
    at = g.emit(op.add(at, g.tensor(1.0)))
    if align_corners:
        return g.emit(op.multiply(at, g.tensor((size - 1) / 2)))
    at = g.emit(op.subtract(g.emit(op.multiply(at, g.tensor(float(size)))), g.tensor(1.0)))
    return g.emit(op.multiply(at, g.tensor(0.5)))


def _within(g: Graph, at: relax.Expr, size: int, mode: int, align_corners: bool) -> relax.Expr:
    """Places outside as the padding has them: left there, moved to the border, or reflected."""
    if mode == ZEROS:
        return at
    least, most = g.tensor(0.0), g.tensor(size - 1.0)
    if mode == REFLECTION:
        low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        at = _reflected(g, at, low, span) if span else g.emit(op.zeros_like(at))
    # A NaN is the last pixel.
    at = g.emit(op.where(g.emit(op.less(at, least)), least, at))
    return g.emit(op.where(g.emit(op.less(at, most)), at, most))


def _reflected(g: Graph, at: relax.Expr, low: float, span: float) -> relax.Expr:
    way = g.emit(op.abs(g.emit(op.subtract(at, g.tensor(low)))))
    flips = g.emit(op.floor(g.emit(op.divide(way, g.tensor(span)))))
    rest = g.emit(op.subtract(way, g.emit(op.multiply(flips, g.tensor(span)))))
    half = g.emit(op.multiply(flips, g.tensor(0.5)))
    even = g.emit(op.equal(half, g.emit(op.floor(half))))
    back = g.emit(op.subtract(g.tensor(span), rest))
    return g.emit(op.add(g.emit(op.where(even, rest, back)), g.tensor(low)))


def _neighbours(
    g: Graph, at: relax.Expr, size: int, mode: int
) -> list[tuple[relax.Expr, relax.Expr | None, relax.Expr]]:
    """The pixels that count along an axis: the place of each, int64 and in the image, its share
    (None for all of it), and whether it was in the image."""
    if mode == NEAREST:
        pixels = [(g.emit(op.round(at)), None)]
    else:
        below = g.emit(op.floor(at))
        above = g.emit(op.add(below, g.tensor(1.0)))
        shares = (op.subtract(above, at), op.subtract(at, below))
        pixels = [(below, g.emit(shares[0])), (above, g.emit(shares[1]))]
    found = []
    for pixel, share in pixels:
        reached = g.emit(op.greater_equal(pixel, g.tensor(0.0)))
        inside = g.emit(op.less_equal(pixel, g.tensor(size - 1.0)))
        inside = g.emit(op.logical_and(reached, inside))
        place = g.emit(op.astype(g.emit(op.where(inside, pixel, g.tensor(0.0))), "int64"))
        found.append((place, share, inside))
    return found


SAMPLING = dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d"), grid_sample)
