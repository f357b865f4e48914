"""The unary functions of ``codegen_cc.activations`` and ``ext_unary_kind``, by numpy."""

from __future__ import annotations

import math

import numpy as np

#: Alpha and gamma of SELU (Klambauer et al., Self-Normalizing Neural Networks, 2017).
SELU = (1.6732632423543772, 1.0507009873554805)

_erf = np.vectorize(math.erf, otypes=["float64"])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _cube(x: np.ndarray) -> np.ndarray:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def apply_function(kind: str, alpha: float, beta: float, x: np.ndarray) -> np.ndarray:
    """y = f(x) in the dtype of x where numpy keeps it (whole numbers by relu), else in float64."""
    with np.errstate(all="ignore"):
        real = x.astype("float64")
        functions = {
            "identity": lambda: x,
            "relu": lambda: np.maximum(x, 0),
            "clip": lambda: np.minimum(np.maximum(x, alpha), beta),
            "sigmoid": lambda: _sigmoid(real),
            "silu": lambda: x * _sigmoid(real),
            "hard_sigmoid": lambda: np.clip(alpha * x + beta, 0, 1),
            "hard_swish": lambda: x * np.clip(x / 6 + 0.5, 0, 1),
            "gelu": lambda: x / 2 * (1 + _erf(x / math.sqrt(2))),
            "gelu_tanh": lambda: x / 2 * (1 + np.tanh(_cube(real))),
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
            "selu": lambda: SELU[1] * np.where(x < 0, SELU[0] * np.expm1(x), x),
            "softplus": lambda: np.logaddexp(0, x),
            "mish": lambda: x * np.tanh(np.logaddexp(0, x)),
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
            "not": lambda: ~x,
        }
        return functions[kind]()
