"""Images of windows that lie in them, of which what meets in a pixel is added up."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np
from tvm import relax


class Windows(NamedTuple):
    """Sizes of an image, of blocks, how many there are along each axis, and where they lie."""

    image: list[int]
    block: list[int]
    counts: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]


def summed_windows(
    emit: Callable[[relax.Expr], relax.Expr], x: relax.Expr, channels: int, sizes: Windows
) -> relax.Expr:
    """An image [N, channels, *image] of windows [N, channels prod(block), windows], in any form.

    It is sums of moved taps, for all pixels that are alike by the strides, which then lie in turns.
    Pixel s q + r of an axis gets tap t of window q - k where d t = s k + r.
    """
    op, rank = relax.op, len(sizes.image)
    batch, dtype = x.ty.shape.values[0], str(x.ty.dtype)
    taps = emit(op.reshape(x, [batch, channels, prod(sizes.block), *sizes.counts]))
    reach = [d * (b - 1) for d, b in zip(sizes.dilations, sizes.block, strict=True)]
    ends = [i + p for i, p in zip(sizes.image, sizes.pads[:rank], strict=True)]
    numbers = zip(sizes.counts, reach, sizes.strides, ends, strict=True)
    turns = [max(n + r // s, -(-end // s)) for n, r, s, end in numbers]
    parts: dict[tuple[int, ...], relax.Expr] = {}
    for place, tap in enumerate(np.ndindex(*sizes.block)):
        offsets = [d * t for d, t in zip(sizes.dilations, tap, strict=True)]
        moves, phase = zip(*map(divmod, offsets, sizes.strides), strict=True)
        one = emit(op.strided_slice(taps, [2], [place], [place + 1]))
        one = emit(op.reshape(one, [batch, channels, *sizes.counts]))
        rest = [q - n - k for q, n, k in zip(turns, sizes.counts, moves, strict=True)]
        widths = [w for pair in zip(moves, rest, strict=True) for w in pair]
        moved = emit(op.nn.pad(one, [0] * 4 + widths))
        parts[phase] = emit(op.add(parts[phase], moved)) if phase in parts else moved
    none = emit(op.zeros([batch, channels, *turns], dtype))
    whole = [parts.get(phase, none) for phase in np.ndindex(*sizes.strides)]
    rows = [emit(op.reshape(one, [batch, channels, 1, *turns])) for one in whole]
    y = emit(op.concat(rows, 2)) if len(rows) > 1 else whole[0]
    y = emit(op.reshape(y, [batch, channels, *sizes.strides, *turns]))
    order = [0, 1, *(axis for i in range(rank) for axis in (2 + rank + i, 2 + i))]
    full = [q * s for q, s in zip(turns, sizes.strides, strict=True)]
    y = emit(op.reshape(emit(op.permute_dims(y, order)), [batch, channels, *full]))
    axes = list(range(2, 2 + rank))
    return op.strided_slice(y, axes, sizes.pads[:rank], ends)
