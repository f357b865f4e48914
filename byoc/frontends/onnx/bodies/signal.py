"""Fourier transforms as products with matrices of cosines and sines.

    X[k] = sum_n x[n] w(n k),  w(m) = exp(-2 pi i m / N)        the inverse: exp(+...), and / N

Complex numbers are pairs along the last axis.
"""

from __future__ import annotations

import numpy as np

from byoc.frontends.onnx.bodies.call import Call


def dft(call: Call) -> bool:
    """DFT along one axis, of numbers or pairs. Of an axis of any size, of all elements."""
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
    onesided = bool(call.attrs.get("onesided", 0))
    rank, size, parts = len(shape), shape[axis], shape[-1]
    if axis == rank - 1 or (onesided and inverse):
        return None
    if size is None and length is None:
        return _of_any_length(call, axis, inverse, onesided)
    length = size if length is None else length
    x = call.input(0)
    if size is None:
        x, size = _of_length(call, axis, length), length
    elif size > length:
        x, size = call.slice(x, axis, 0, length), length
    count = length // 2 + 1 if onesided else length
    matrix = call.constant(dft_matrix(size, length, count, parts, inverse), call.dtype())
    # [..., size, ..., parts] as [..., size parts] times [size parts, 2 count].
    others = [place for place in range(rank - 1) if place != axis]
    rows = call.transpose(x, *others, axis, rank - 1)
    product = call.op("MatMul", call.reshape(rows, *[0] * len(others), size * parts), matrix)
    split = call.reshape(product, *[0] * len(others), 2, count)
    back = [*others, rank - 1, axis]
    return call.transpose(split, *(back.index(place) for place in range(rank)))


def _of_any_length(call: Call, axis: int, inverse: bool, onesided: bool) -> str:
    """The transform along an axis of which only the call tells the size: [..., N] [N, N].

    Onesided it is [..., N] [N, N / 2 + 1].
    """
    rank, parts = len(call.shape()), call.shape()[-1]
    size, number = call.extent(call.input(0), axis), call.element()
    places = waves = call.up_to(size)
    if onesided:
        half = call.op("Div", size, call.integers(2))
        waves = call.up_to(call.op("Add", half, call.integers(1)))
    products = call.op("Mul", call.over("Unsqueeze", places, [1]), waves)
    count = call.op("Cast", size, to=number)
    turns = call.op("Div", call.op("Cast", call.op("Mod", products, size), to=number), count)
    angles = call.op("Mul", turns, call.number((2 if inverse else -2) * np.pi))
    cosine, sine = call.op("Cos", angles), call.op("Sin", angles)
    others = [place for place in range(rank - 1) if place != axis]
    rows = call.transpose(call.input(0), *others, rank - 1, axis)
    numbers = [
        call.over("Squeeze", call.slice(rows, rank - 2, part, part + 1), [rank - 2])
        for part in range(parts)
    ]
    y = [call.op("MatMul", numbers[0], wave) for wave in (cosine, sine)]
    if parts == 2:
        turned = [call.op("MatMul", numbers[1], wave) for wave in (sine, cosine)]
        y = [call.op("Sub", y[0], turned[0]), call.op("Add", y[1], turned[1])]
    if inverse:
        y = [call.op("Div", part, count) for part in y]
    back = [*others, axis]
    whole = [
        call.over("Unsqueeze", call.transpose(part, *map(back.index, range(rank - 1))), [rank - 1])
        for part in y
    ]
    return call.op("Concat", *whole, axis=rank - 1)


def _of_length(call: Call, axis: int, length: int) -> str:
    """The input with so many elements along an axis of any extent: cut, or zeros behind."""
    missing = call.op("Sub", call.integers(length), call.extent(call.input(0), axis))
    sides = [0] * 2 * len(call.shape())
    sides[len(call.shape()) + axis] = 1
    return call.op("Pad", call.input(0), call.op("Mul", missing, call.integers(*sides)))


def dft_matrix(size: int, length: int, count: int, parts: int, inverse: bool) -> np.ndarray:
    """[size parts, 2 count]: rows are x, element by element, columns all real parts of X first."""
    turns = np.outer(np.arange(size), np.arange(count)) % length / length
    waves = np.exp((2j if inverse else -2j) * np.pi * turns) / (length if inverse else 1)
    rows = [np.stack([waves.real, waves.imag], 1)]
    if parts == 2:
        rows.append(np.stack([-waves.imag, waves.real], 1))
    return np.stack(rows, 1).reshape(size * parts, 2 * count)


def stft(call: Call) -> bool:
    """Transforms of frames of a signal [B, L] or [B, L, 1 or 2]: a convolution of any length L.

    The step and the frame's length are known. Where the window is, the zeros at its ends take no
    part: the signal loses as many elements there.
    """
    shape, step = call.shape(), call.known(1)
    length = call.known(3) if call.input(3) else None
    if length is None and call.input(2):
        window = call.shape(2)
        length = window and window[0]
    if shape is None or step is None or length is None or step < 1 or length < 1:
        return False
    parts = 1 if len(shape) == 2 else shape[-1]
    if len(shape) not in (2, 3) or parts not in (1, 2) or (shape[1] or length) < length:
        return False
    count = length // 2 + 1 if call.attrs.get("onesided", 1) else length
    x = call.over("Unsqueeze", call.input(0), [1])
    if len(shape) == 3:
        x = call.transpose(call.input(0), 0, 2, 1)
    rows = dft_matrix(length, length, count, parts, False).reshape(length, parts, 2 * count)
    waves = rows.transpose(2, 1, 0)
    window = call.array(2) if call.input(2) else None
    if window is not None and window.any():
        first, last = np.flatnonzero(window)[[0, -1]]
        if last - first + 1 < length:
            x = call.slice(x, 2, int(first), int(last) + 1 - length or 2**63 - 1)
        waves = (waves * window.astype(np.float64))[:, :, first : last + 1]
    kernel = call.constant(waves, call.dtype())
    if call.input(2) and (window is None or not window.any()):
        kernel = call.op("Mul", kernel, call.input(2))
    product = call.op("Conv", x, kernel, strides=[step])
    call.give(0, call.transpose(call.reshape(product, 0, 2, count, -1), 0, 3, 2, 1))
    return True
