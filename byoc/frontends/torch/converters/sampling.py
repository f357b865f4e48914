"""Images read at places that a grid names, and places of the greatest elements of windows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np
import torch
from tvm import relax

from byoc.frontends.torch.sizes import known_extents
from byoc.frontends.torch.values import Graph, Value

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
    sizes, counts = known_extents(image, 2), known_extents(values, 2)
    if sizes is None or counts is None:
        raise ValueError("places of an image of unknown size; need a fixed one")
    widths = [0, 0, 0, 0]
    for (_, _, _, pad), end in zip(windows, ends, strict=True):
        widths += [pad, end]
    if any(widths):
        image = g.emit(op.nn.pad(image, widths, pad_value=-np.inf))
    axes = list(range(2, 2 + len(sizes)))
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
    if spatial != 2 and interpolation_mode == BICUBIC:
        raise ValueError("bicubic sampling of a volume; need bilinear or nearest")
    return op.image.grid_sample(
        image,
        op.permute_dims(grid, [0, spatial + 1, *range(1, spatial + 1)]),
        ("bilinear", "nearest", "bicubic")[interpolation_mode],
        "NCHW" if spatial == 2 else "NCDHW",
        ("zeros", "border", "reflection")[padding_mode],
        align_corners,
    )


SAMPLING = dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d"), grid_sample)
