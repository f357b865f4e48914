"""Places of the greatest elements of windows, as pools tell them beside these elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import numpy as np
from tvm import relax

op = relax.op


def known_extents(tensor: relax.Expr, first: int) -> list[int] | None:
    """The extents from an axis on; None where one is not known."""
    found = [getattr(size, "value", None) for size in tensor.ty.shape.values[first:]]
    return None if None in found else [int(size) for size in found]


def places_of_greatest(
    emit: Callable[[relax.Expr], relax.Expr],
    image: relax.Expr,
    values: relax.Expr,
    windows: Sequence[tuple[int, int, int, int]],
    last_nan: bool,
    by_columns: bool = False,
) -> relax.Expr:
    """Where in its image, counted row by row, the greatest element of each window stands, int64.

    image [N, C, ...], values [N, C, ...] what the windows gave; ``windows`` are taps, step, gap and
    padding in front of each axis. The first of equal elements, and of NaN, or with ``last_nan`` the
    last NaN, as in PyTorch. With ``by_columns`` places count along the first axis of the image.
    Raises ``ValueError`` for an image of open height or width.
    """
    sizes, counts = known_extents(image, 2), known_extents(values, 2)
    if sizes is None or counts is None:
        raise ValueError("places of an image of unknown size; need a fixed one")
    widths = [0, 0, 0, 0]
    for size, count, (taps, step, gap, pad) in zip(sizes, counts, windows, strict=True):
        widths += [pad, max(0, (count - 1) * step + (taps - 1) * gap + 1 - size - pad)]
    if any(widths):
        image = emit(op.nn.pad(image, widths, pad_value=-np.inf))
    axes = list(range(2, 2 + len(sizes)))
    taken = []
    for tap in product(*(range(taps) for taps, *_ in windows)):
        begins = [at * gap for at, (_, _, gap, _) in zip(tap, windows, strict=True)]
        steps = [step for _, step, _, _ in windows]
        stops = [b + (n - 1) * s + 1 for b, n, s in zip(begins, counts, steps, strict=True)]
        part = emit(op.strided_slice(image, axes, begins, stops, steps))
        taken.append(emit(op.expand_dims(part, 2)))
    chosen = emit(op.argmax(emit(op.concat(taken, 2)), 2))
    if last_nan:
        last = emit(op.argmax(emit(op.concat(taken[::-1], 2)), 2))
        last = emit(op.subtract(relax.const(len(taken) - 1, "int64"), last))
        chosen = emit(op.where(emit(op.isnan(values)), last, chosen))
    outputs = prod(counts)
    chosen = emit(op.multiply(chosen, relax.const(outputs, "int64")))
    here = np.arange(outputs, dtype=np.int64).reshape(counts)
    index = emit(op.add(chosen, relax.const(here, "int64")))
    places = _places_of_taps(sizes, counts, windows, by_columns)
    return op.take(relax.const(places, "int64"), index, 0)


def _places_of_taps(
    sizes: Sequence[int],
    counts: Sequence[int],
    windows: Sequence[tuple[int, int, int, int]],
    by_columns: bool,
) -> np.ndarray:
    """[taps x windows]: a tap's place in the image; of one in the padding, the window's first."""
    rank, total = len(sizes), np.zeros(1, np.int64)
    for axis, (size, count, window) in enumerate(zip(sizes, counts, windows, strict=True)):
        taps, step, gap, pad = window
        at = np.arange(taps)[:, None] * gap + np.arange(count) * step - pad
        # The first tap in the image, which each window has.
        at = np.where(at < 0, at % gap, at)
        at = np.where(at >= size, at[:1], at)
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = at.shape
        apart = prod(sizes[:axis]) if by_columns else prod(sizes[axis + 1 :])
        total = total + at.reshape(shape) * apart
    return total.ravel()
