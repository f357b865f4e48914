"""Fourier transforms as products with matrices of cosines and sines.

    X[k] = sum_n x[n] w(n k),  w(m) = exp(-2 pi i m / N)        the inverse: exp(+...), and / N

Complex numbers are pairs along the last axis.
"""

from __future__ import annotations

import numpy as np

from byoc.frontends.onnx.bodies.call import Call


def dft(call: Call) -> bool:
    """DFT along one axis, of numbers or pairs; sizes are known."""
    shape = call.shape()
    if shape is None or shape[-1] not in (1, 2):
        return False
    axis: int | None = call.attrs.get("axis", 1)
    if call.opset >= 20:
        axis = -2 if not call.input(2) else call.known(2)
    length = None
    if call.input(1):
        length = call.known(1)
        if length is None:
            return False
    if axis is not None:
        y = _along(call, axis % len(shape), length)
        if y is None:
            return False
        call.give(0, y)
        return True
    if length is not None or call.attrs.get("onesided", 0) or shape[-1] != 2:
        return False
    # The axis is computed: the one of all results that it asks for.
    rank, y = len(shape), call.input(0)
    asked = call.op("Mod", call.input(2), call.constant(rank, call.dtype(2)))
    for place in range(rank - 1):
        part = _along(call, place, None)
        if part is None:
            return False
        this = call.op("Equal", asked, call.constant(place, call.dtype(2)))
        y = call.op("Where", this, part, y)
    call.give(0, y)
    return True


def _along(call: Call, axis: int, length: int | None) -> str | None:
    shape, inverse = call.shape(), bool(call.attrs.get("inverse", 0))
    rank, size, parts = len(shape), shape[axis], shape[-1]
    if size is None or axis == rank - 1:
        return None
    length = size if length is None else length
    x = call.input(0)
    onesided = bool(call.attrs.get("onesided", 0))
    if onesided and inverse:
        return None
    if size > length:
        x, size = call.slice(x, axis, 0, length), length
    count = length // 2 + 1 if onesided else length
    matrix = call.constant(dft_matrix(size, length, count, parts, inverse), call.dtype())
    # [..., size, ..., parts] as [..., size parts] times [size parts, count 2].
    others = [place for place in range(rank - 1) if place != axis]
    rows = call.transpose(x, *others, axis, rank - 1)
    product = call.op("MatMul", call.reshape(rows, *[0] * len(others), size * parts), matrix)
    split = call.reshape(product, *[0] * len(others), count, 2)
    back = [*others, axis, rank - 1]
    return call.transpose(split, *(back.index(place) for place in range(rank)))


def dft_matrix(size: int, length: int, count: int, parts: int, inverse: bool) -> np.ndarray:
    """[size parts, count 2]: rows are real and imaginary parts of x, columns those of X."""
    turns = np.outer(np.arange(size), np.arange(count)) % length / length
    waves = np.exp((2j if inverse else -2j) * np.pi * turns) / (length if inverse else 1)
    rows = [np.stack([waves.real, waves.imag], -1)]
    if parts == 2:
        rows.append(np.stack([-waves.imag, waves.real], -1))
    return np.stack(rows, 1).reshape(size * parts, 2 * count)


def stft(call: Call) -> bool:
    """Fourier transforms of frames of a signal [B, L, 1 or 2], with a window; sizes are known."""
    shape, step = call.shape(), call.known(1)
    length = call.known(3) if call.input(3) else None
    if length is None and call.input(2):
        window = call.shape(2)
        length = window and window[0]
    if shape is None or None in (shape[1], shape[-1], step, length):
        return False
    parts, onesided = shape[-1], bool(call.attrs.get("onesided", 1))
    count = length // 2 + 1 if onesided else length
    frames = (shape[1] - length) // step + 1
    if step < 1 or length < 1 or frames < 1 or len(shape) != 3:
        return False
    places = np.arange(frames)[:, None] * step + np.arange(length)
    taken = call.op("Gather", call.input(0), call.constant(places, np.int64), axis=1)
    matrix = call.constant(dft_matrix(length, length, count, parts, False), call.dtype())
    if call.input(2):
        window = call.over("Unsqueeze", call.input(2), [1])
        if parts == 2:
            window = call.reshape(call.op("Concat", window, window, axis=1), -1, 1)
        matrix = call.op("Mul", matrix, window)
    product = call.op("MatMul", call.reshape(taken, 0, 0, length * parts), matrix)
    call.give(0, call.reshape(product, 0, 0, count, 2))
    return True
