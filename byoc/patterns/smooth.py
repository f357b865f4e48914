"""Readers of smooth activations, which the importer writes in pieces: see ``idioms``.

Each takes the last binding and gives the function that ends there, or None. NaN comes out as NaN,
infinities as in the pieces.
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.algebra import near
from byoc.ir.dataflow import Block
from byoc.ir.pattern import Number, Pattern, call, either, find, plus, times
from byoc.patterns.idiom import Idiom, rounded

#: Klambauer et al., "Self-Normalizing Neural Networks", 2017.
SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875


def is_softplus(operator: relax.Call) -> bool:
    """Whether Relax's operator is log(1 + exp(x)).

    Above its threshold it is x itself, which then equals the logarithm in fp32.
    """
    return float(operator.attrs.beta) == 1.0 and float(operator.attrs.threshold) >= 17.0


def _log_of_one_plus_exp(x: Pattern) -> Pattern:
    return call("log", plus(call("exp", x), 1.0))


_ELU = plus(
    times(call("nn.relu", call("subtract", 1.0, call("exp", "x"))), Number("-alpha")),
    call("nn.relu", "x"),
)
_SELU = times(_ELU, Number("gamma"))
_SOFTPLUS = plus(
    either(call("nn.relu", "x"), call("maximum", "x", 0.0)),
    _log_of_one_plus_exp(call("negative", call("abs", "x"))),
)
_ANY_SOFTPLUS = either(
    call("nn.softplus", "x", where=is_softplus), _log_of_one_plus_exp("x"), _SOFTPLUS
)
_MISH = times("x", call("tanh", _ANY_SOFTPLUS))
_LOG1P = call("log", plus("x", 1.0))
_EXPM1 = either(call("subtract", call("exp", "x"), 1.0), plus(call("exp", "x"), -1.0))


def elu(block: Block, var: relax.Var) -> Idiom | None:
    """``-alpha * relu(1 - exp(x)) + relu(x)``; times the number of its paper, SELU."""
    found = find(block, var, either(_ELU, _SELU))
    if found is None:
        return None
    alpha, gamma = rounded(-found.numbers["-alpha"], var), found.numbers.get("gamma")
    if gamma is None:
        return Idiom("elu", alpha, 0.0, found["x"], found.bindings)
    if not near(gamma, SELU_GAMMA) or not near(alpha, SELU_ALPHA):
        return None
    return Idiom("selu", 0.0, 0.0, found["x"], found.bindings)


def softplus(block: Block, var: relax.Var) -> Idiom | None:
    """``relu(x) + log(1 + exp(-|x|))``, which never overflows."""
    found = find(block, var, _SOFTPLUS)
    return Idiom("softplus", 0.0, 0.0, found["x"], found.bindings) if found else None


def mish(block: Block, var: relax.Var) -> Idiom | None:
    """``x tanh(softplus(x))``; an overflow of the exponential alone does no harm under tanh."""
    found = find(block, var, _MISH)
    return Idiom("mish", 0.0, 0.0, found["x"], found.bindings) if found else None


def near_zero(block: Block, var: relax.Var) -> Idiom | None:
    """``log(1 + x)`` and ``exp(x) - 1``, with all digits of a small ``x``."""
    for kind, pattern in (("log1p", _LOG1P), ("expm1", _EXPM1)):
        found = find(block, var, pattern)
        if found is not None:
            return Idiom(kind, 0.0, 0.0, found["x"], found.bindings)
    return None
