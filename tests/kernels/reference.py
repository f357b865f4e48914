"""The kernels' formulas in numpy, in float64: what results are compared with."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_erf = np.vectorize(math.erf, otypes=[np.float64])


#: Scale and slope of SELU (Klambauer et al., Self-Normalizing Neural Networks, 2017).
_SELU = (1.0507009873554805, 1.6732632423543772)


def _clip(x: Array, low: float, high: float) -> Array:
    return np.minimum(np.maximum(x, low), high)


def activate(kind: str, x: npt.ArrayLike, alpha: float = 0.0, beta: float = 0.0) -> Array:
    """y = f(x) as ``ext_unary_kind`` defines it."""
    x = np.asarray(x, np.float64)
    alpha, beta = float(np.float32(alpha)), float(np.float32(beta))
    with np.errstate(all="ignore"):
        sigmoid = 1 / (1 + np.exp(-x))
        functions = {
            "identity": lambda: x,
            "relu": lambda: np.maximum(x, 0),
            "clip": lambda: _clip(x, alpha, beta),
            "sigmoid": lambda: sigmoid,
            "silu": lambda: x * sigmoid,
            "hard_sigmoid": lambda: _clip(alpha * x + beta, 0, 1),
            "hard_swish": lambda: x * _clip(x / 6 + 0.5, 0, 1),
            "gelu": lambda: x / 2 * (1 + _erf(x / np.sqrt(2))),
            "gelu_tanh": lambda: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
            "tanh": lambda: np.tanh(x),
            "leaky_relu": lambda: np.where(x < 0, alpha * x, x),
            "exp": lambda: np.exp(x),
            "log": lambda: np.log(x),
            "erf": lambda: _erf(x),
            "sqrt": lambda: np.sqrt(x),
            "rsqrt": lambda: 1 / np.sqrt(x),
            "abs": lambda: np.abs(x),
            "neg": lambda: -x,
            "elu": lambda: np.where(x < 0, alpha * np.expm1(x), x),
            "selu": lambda: _SELU[0] * np.where(x < 0, _SELU[1] * np.expm1(x), x),
            "mish": lambda: x * np.tanh(np.logaddexp(0, x)),
            "softplus": lambda: np.logaddexp(0, x),
            "floor": lambda: np.floor(x),
            "ceil": lambda: np.ceil(x),
            "round": lambda: np.rint(x),
            "sin": lambda: np.sin(x),
            "cos": lambda: np.cos(x),
            "tan": lambda: np.tan(x),
            "atan": lambda: np.arctan(x),
            "asin": lambda: np.arcsin(x),
            "acos": lambda: np.arccos(x),
            "asinh": lambda: np.arcsinh(x),
            "acosh": lambda: np.arccosh(x),
            "atanh": lambda: np.arctanh(x),
            "expm1": lambda: np.expm1(x),
            "log1p": lambda: np.log1p(x),
            "trunc": lambda: np.trunc(x),
            "sign": lambda: np.sign(x),
            "reciprocal": lambda: 1 / x,
        }
        return functions[kind]()


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
