"""Places of the greatest elements of windows, as pools tell them beside these elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import numpy as np
import tvm
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
    """
    sizes, counts = ([*tensor.ty.shape.values[2:]] for tensor in (image, values))
    known = known_extents(image, 2), known_extents(values, 2)
    widths, ends = [0, 0, 0, 0], _ends(*known, windows)
    for end, (_, _, _, pad) in zip(ends, windows, strict=True):
        widths += [pad, end]
    if any(widths):
        image = emit(op.nn.pad(image, widths, pad_value=-np.inf))
    axes = list(range(2, 2 + len(sizes)))
    taken = []
    for tap in product(*(range(taps) for taps, *_ in windows)):
        begins = [at * gap for at, (_, _, gap, _) in zip(tap, windows, strict=True)]
        steps = [step for _, step, _, _ in windows]
        stops = [b + (n - 1) * s + 1 for b, n, s in zip(begins, counts, steps, strict=True)]
        part = emit(op.strided_slice(image, axes, begins, stops, steps, assume_inbound=True))
        taken.append(emit(op.expand_dims(part, 2)))
    chosen = emit(op.argmax(emit(op.concat(taken, 2)), 2))
    if last_nan:
        last = emit(op.argmax(emit(op.concat(taken[::-1], 2)), 2))
        last = emit(op.subtract(relax.const(len(taken) - 1, "int64"), last))
        chosen = emit(op.where(emit(op.isnan(values)), last, chosen))
    outputs = prod(counts[1:], start=counts[0])
    chosen = emit(op.multiply(chosen, number_of(emit, outputs)))
    if None in known:
        here = emit(op.reshape(emit(op.arange(0, outputs, 1, "int64")), counts))
        places = _open_places(emit, sizes, counts, windows, by_columns)
    else:  # written as constants, which take long to fold
        here = relax.const(np.arange(prod(known[1]), dtype=np.int64).reshape(known[1]), "int64")
        places = relax.const(_places_of_taps(*known, windows, by_columns), "int64")
    return op.take(places, emit(op.add(chosen, here)), 0)


def number_of(emit: Callable[[relax.Expr], relax.Expr], extent: tvm.ir.Expr) -> relax.Expr:
    """An extent as an integer of the network."""
    if (known := getattr(extent, "value", None)) is not None:
        return relax.const(int(known), "int64")
    return emit(op.reshape(emit(op.shape_to_tensor(relax.ShapeExpr([extent]))), []))


def _ends(
    sizes: list[int] | None,
    counts: list[int] | None,
    windows: Sequence[tuple[int, int, int, int]],
) -> list[int]:
    """How far windows reach beyond each axis, or where sizes are open, may reach at most."""
    if sizes is None or counts is None:
        return [(taps - 1) * gap for taps, _, gap, _ in windows]
    return [
        max(0, (count - 1) * step + (taps - 1) * gap + 1 - size - pad)
        for size, count, (taps, step, gap, pad) in zip(sizes, counts, windows, strict=True)
    ]


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


def _open_places(
    emit: Callable[[relax.Expr], relax.Expr],
    sizes: Sequence[tvm.ir.Expr],
    counts: Sequence[tvm.ir.Expr],
    windows: Sequence[tuple[int, int, int, int]],
    by_columns: bool,
) -> relax.Expr:
    """What ``_places_of_taps`` gives, of open sizes."""
    rank, total = len(sizes), relax.const(0, "int64")
    for axis, (size, count, window) in enumerate(zip(sizes, counts, windows, strict=True)):
        taps, step, gap, pad = window
        first = emit(op.multiply(emit(op.arange(0, count, 1, "int64")), relax.const(step, "int64")))
        first = emit(op.subtract(first, relax.const(pad, "int64")))
        at = emit(op.add(relax.const(np.arange(taps)[:, None] * gap, "int64"), first))
        # The first tap in the image, which each window has.
        first, at = (emit(_not_before(emit, some, gap)) for some in (first, at))
        beyond = emit(op.greater_equal(at, number_of(emit, size)))
        at = emit(op.where(beyond, first, at))
        shape: list = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = taps, count
        at = emit(op.reshape(at, shape))
        if others := sizes[:axis] if by_columns else sizes[axis + 1 :]:
            apart = prod(others[1:], start=others[0])
            at = emit(op.multiply(at, number_of(emit, apart)))
        total = emit(op.add(total, at))
    return emit(op.reshape(total, [-1]))


def _not_before(emit: Callable[[relax.Expr], relax.Expr], at: relax.Expr, gap: int) -> relax.Expr:
    """Places, and the first in the image of taps so far apart in place of those before it."""
    before = emit(op.less(at, relax.const(0, "int64")))
    return op.where(before, emit(op.floor_mod(at, relax.const(gap, "int64"))), at)
