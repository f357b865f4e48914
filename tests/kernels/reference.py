"""The kernels' formulas in numpy, in float64: what results are compared with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tests.unary_functions import apply_function

Array = npt.NDArray[np.float64]


def activate(kind: str, x: npt.ArrayLike, alpha: float = 0.0, beta: float = 0.0) -> Array:
    """y = f(x) as ``ext_unary_kind`` defines it."""
    x = np.asarray(x, np.float64)
    return apply_function(kind, float(np.float32(alpha)), float(np.float32(beta)), x)


def im2col(
    x: npt.ArrayLike,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    out: tuple[int, int],
    fill: float,
) -> Array:
    """Windows of x [N, H, W, C] as [N, OH, OW, KH, KW, C]; padding is top, left, bottom, right."""
    x = np.asarray(x, np.float64)
    n, h, w, c = x.shape
    top, left = padding[:2]
    tall = max(top + h, (out[0] - 1) * strides[0] + (kernel[0] - 1) * dilation[0] + 1)
    wide = max(left + w, (out[1] - 1) * strides[1] + (kernel[1] - 1) * dilation[1] + 1)
    padded = np.full((n, tall, wide, c), fill)
    padded[:, top : top + h, left : left + w] = x
    windows = np.empty((n, *out, *kernel, c))
    for kh in range(kernel[0]):
        for kw in range(kernel[1]):
            rows = kh * dilation[0] + strides[0] * np.arange(out[0])
            columns = kw * dilation[1] + strides[1] * np.arange(out[1])
            windows[:, :, :, kh, kw] = padded[:, rows[:, None], columns]
    return windows


def epilogue(
    acc: Array,
    bias: npt.ArrayLike | None,
    before: tuple[str, float, float],
    residual: npt.ArrayLike | None,
    after: tuple[str, float, float],
    factor: bool = False,
) -> Array:
    """after(before(acc + bias) + residual), or times it where it is a factor."""
    if bias is not None:
        acc = acc + np.asarray(bias, np.float64)
    acc = activate(before[0], acc, *before[1:])
    if residual is not None:
        other = np.asarray(residual, np.float64)
        acc = acc * other if factor else acc + other
    return activate(after[0], acc, *after[1:])


def reduced(kind: str, x: Array) -> tuple[Array, npt.ArrayLike]:
    """``x[o][r][i]`` over r as ``ext_reduce`` does, and the error that float32 may have."""
    of_squares = kind.endswith("_squares")
    terms = x * x if of_squares else x
    function = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}
    with np.errstate(invalid="ignore"):
        result = function[kind.removesuffix("_squares")](terms, axis=1)
    return result, 1e-6 * np.abs(terms).sum(1) if kind.startswith("sum") else 1e-6
