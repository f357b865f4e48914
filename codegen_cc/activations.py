"""Elementwise functions of one number: what ``unary`` nodes compute, and epilogues end with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Activation:
    """A function's parameters, of ``alpha`` and ``beta`` in this order, and usual values of them.

    ``fused`` says whether partitioning takes it into the epilogue of another operator.
    """

    parameters: tuple[str, ...] = ()
    usual: tuple[float, ...] = ()
    fused: bool = False


_PLAIN = Activation()
_FUSED = Activation(fused=True)

#: By name, as in ``ext_unary_kind``.  ``clip`` has (alpha, beta) = (low, high), ``hard_sigmoid``
#: slope and offset, ``leaky_relu`` its slope, ``elu`` its factor.
ACTIVATIONS: dict[str, Activation] = {
    "relu": _FUSED,
    "clip": Activation(("alpha", "beta"), (0.0, 6.0), fused=True),
    "sigmoid": _FUSED,
    "silu": _FUSED,
    "hard_sigmoid": Activation(("alpha", "beta"), (0.2, 0.5), fused=True),
    "hard_swish": _FUSED,
    "gelu": _FUSED,
    "gelu_tanh": _FUSED,
    "tanh": _FUSED,
    "leaky_relu": Activation(("alpha",), (0.1,), fused=True),
    "exp": _PLAIN,
    "log": _PLAIN,
    "erf": _PLAIN,
    "sqrt": _PLAIN,
    "rsqrt": _PLAIN,
    "abs": _PLAIN,
    "neg": _PLAIN,
    "elu": Activation(("alpha",), (1.0,), fused=True),
    "selu": _FUSED,
    "mish": _FUSED,
    "softplus": _FUSED,
    "floor": _PLAIN,
    "ceil": _PLAIN,
    "round": _PLAIN,
    "sin": _PLAIN,
    "cos": _PLAIN,
    "tan": _PLAIN,
    "atan": _PLAIN,
    "asin": _PLAIN,
    "acos": _PLAIN,
    "asinh": _PLAIN,
    "acosh": _PLAIN,
    "atanh": _PLAIN,
    "sign": _PLAIN,
    "reciprocal": _PLAIN,
    "expm1": _PLAIN,
    "log1p": _PLAIN,
    "trunc": _PLAIN,
}


def parameters_of(kind: str) -> tuple[str, ...]:
    """The parameters of an activation; none for another step of an epilogue."""
    return ACTIVATIONS[kind].parameters if kind in ACTIVATIONS else ()
