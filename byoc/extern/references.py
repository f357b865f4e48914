"""What the known operators compute, in NumPy, for the generated tests.

Written for clarity, in the vocabulary's layouts (NCHW, OIHW); nothing else relies on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]


def relayout(array: Array, source: str, target: str) -> Array:
    """Axes in another order: NHWC to NCHW, for example."""
    axes = [source.index(letter) for letter in target]
    return np.ascontiguousarray(np.transpose(array, axes))


def matmul(lhs: Array, rhs: Array) -> Array:
    """lhs [.., m, k] x rhs [.., k, n] -> [.., m, n]."""
    return np.matmul(lhs, rhs)


def concat(input0: Array, input1: Array, axis: int) -> Array:
    """The one behind the other along an axis."""
    return np.concatenate([input0, input1], axis)


def softmax(input: Array, axis: int) -> Array:
    """exp(x) / sum(exp(x)), shifted so that nothing overflows."""
    powers = np.exp(input - input.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def conv2d(
    input: Array,
    weight: Array,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Array:
    """input [N, C, H, W], weight [O, C / groups, KH, KW]; padding top, left, bottom, right."""
    top, left, bottom, right = padding
    padded = np.pad(input, ((0, 0), (0, 0), (top, bottom), (left, right)))
    outputs, channels, kernel_h, kernel_w = weight.shape
    rows = (padded.shape[2] - dilation[0] * (kernel_h - 1) - 1) // strides[0] + 1
    columns = (padded.shape[3] - dilation[1] * (kernel_w - 1) - 1) // strides[1] + 1
    result = np.zeros((input.shape[0], groups, outputs // groups, rows, columns), input.dtype)
    images = padded.reshape(padded.shape[0], groups, channels, *padded.shape[2:])
    kernels = weight.reshape(groups, outputs // groups, channels, kernel_h, kernel_w)
    for i in range(kernel_h):
        for j in range(kernel_w):
            y, x = i * dilation[0], j * dilation[1]
            window = images[
                ...,
                y : y + (rows - 1) * strides[0] + 1 : strides[0],
                x : x + (columns - 1) * strides[1] + 1 : strides[1],
            ]
            result += np.einsum("ngcyx,goc->ngoyx", window, kernels[..., i, j])
    return result.reshape(input.shape[0], outputs, rows, columns)
