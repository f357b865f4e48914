"""Readers of smooth activations, which the importer writes in pieces: see ``idioms``.

Each takes the last binding and gives the function that ends there, or None. NaN comes out as NaN,
infinities as in the pieces.
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.algebra import near
from byoc.ir.dataflow import Block, op_name, scalar_of
from byoc.patterns.idiom import Idiom, rounded

#: Klambauer et al., "Self-Normalizing Neural Networks", 2017.
SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875

Pairs = tuple[tuple[relax.Expr, relax.Expr], tuple[relax.Expr, relax.Expr]]


def elu(block: Block, var: relax.Var) -> Idiom | None:
    """``-alpha * relu(1 - exp(x)) + relu(x)``; times the number of its paper, SELU."""
    call = block.call(var, "relax.add", "relax.multiply")
    if call is None:
        return None
    if op_name(call) == "relax.add":
        return _elu(block, var)
    for inner, other in _orders(call):
        gamma = scalar_of(other)
        if gamma is None or not near(gamma, SELU_GAMMA):
            continue
        found = _elu(block, inner)
        if found is not None and near(found.alpha, SELU_ALPHA):
            return Idiom("selu", 0.0, 0.0, found.source, (*found.bindings, var))
    return None


def _orders(call: relax.Call) -> Pairs:
    """The operands in both orders."""
    left, right = call.args
    return (left, right), (right, left)


def _elu(block: Block, expr: relax.Expr) -> Idiom | None:
    added = block.call(expr, "relax.add")
    if added is None:
        return None
    for below, above in _orders(added):
        positive = block.call(above, "relax.nn.relu")
        scaled = block.call(below, "relax.multiply")
        if positive is None or scaled is None:
            continue
        source = positive.args[0]
        for relu, other in _orders(scaled):
            alpha = scalar_of(other)
            inside = _relu_of_one_minus_exp(block, relu, source)
            if alpha is not None and inside is not None:
                bindings = (*inside, below, above, expr)
                return Idiom("elu", rounded(-alpha, expr), 0.0, source, bindings)
    return None


def _relu_of_one_minus_exp(
    block: Block, expr: relax.Expr, source: relax.Expr
) -> tuple[relax.Expr, ...] | None:
    relu = block.call(expr, "relax.nn.relu")
    difference = block.call(relu.args[0], "relax.subtract") if relu is not None else None
    if difference is None or scalar_of(difference.args[0]) != 1.0:
        return None
    power = block.call(difference.args[1], "relax.exp")
    if power is None or power.args[0] != source:
        return None
    return difference.args[1], relu.args[0], expr


def softplus(block: Block, var: relax.Var) -> Idiom | None:
    """``relu(x) + log(1 + exp(-|x|))``, which never overflows."""
    added = block.call(var, "relax.add")
    if added is None:
        return None
    for above, below in _orders(added):
        source = _positive_part_of(block, above)
        inside = _log_of_one_plus_exp(block, below) if source is not None else None
        negative = block.call(inside[0], "relax.negative") if inside is not None else None
        size = block.call(negative.args[0], "relax.abs") if negative is not None else None
        if size is not None and size.args[0] == source:
            bindings = (negative.args[0], *inside, above, var)
            return Idiom("softplus", 0.0, 0.0, source, bindings)
    return None


def _positive_part_of(block: Block, expr: relax.Expr) -> relax.Expr | None:
    """``x`` of ``relu(x)`` or ``maximum(x, 0)``."""
    relu = block.call(expr, "relax.nn.relu")
    if relu is not None:
        return relu.args[0]
    largest = block.call(expr, "relax.maximum")
    if largest is None or scalar_of(largest.args[1]) != 0.0:
        return None
    return largest.args[0]


def _log_of_one_plus_exp(block: Block, expr: relax.Expr) -> tuple[relax.Expr, ...] | None:
    """``y`` and the bindings of ``log(1 + exp(y))``."""
    logarithm = block.call(expr, "relax.log")
    added = block.call(logarithm.args[0], "relax.add") if logarithm is not None else None
    if added is None:
        return None
    for power, other in _orders(added):
        exponential = block.call(power, "relax.exp")
        if exponential is not None and scalar_of(other) == 1.0:
            return exponential.args[0], power, logarithm.args[0], expr
    return None


def mish(block: Block, var: relax.Var) -> Idiom | None:
    """``x tanh(softplus(x))``; an overflow of the exponential alone does no harm under tanh."""
    product = block.call(var, "relax.multiply")
    if product is None:
        return None
    for source, gate in _orders(product):
        tanh = block.call(gate, "relax.tanh")
        inside = _softplus_of(block, tanh.args[0], source) if tanh is not None else None
        if inside is not None:
            return Idiom("mish", 0.0, 0.0, source, (*inside, gate, var))
    return None


def _softplus_of(
    block: Block, expr: relax.Expr, source: relax.Expr
) -> tuple[relax.Expr, ...] | None:
    """The bindings of any form of ``log(1 + exp(source))``."""
    operator = block.call(expr, "relax.nn.softplus")
    if operator is not None:
        plain = operator.args[0] == source and float(operator.attrs.beta) == 1.0
        return (expr,) if plain and float(operator.attrs.threshold) >= 17.0 else None
    direct = _log_of_one_plus_exp(block, expr)
    if direct is not None and direct[0] == source:
        return direct[1:]
    stable = softplus(block, expr)
    return stable.bindings if stable is not None and stable.source == source else None
