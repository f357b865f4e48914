"""Turn the pieces of GELU into ``gelu`` or ``gelu_tanh``.

    gelu(x)      = x / 2 * (1 + erf(x / sqrt(2)))
    gelu_tanh(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))

The factors may come in any order and the constants in any place. Rounding differs in the last
bit from one order to another; NaN and infinities come out the same.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

from tvm import relax

from byoc.ir.algebra import near, polynomial, product
from byoc.ir.dataflow import Block, is_kernel_float, shape_of
from byoc.ir.pattern import call, find, plus

SLOPE = sqrt(2.0 / pi)


def gelu_from_pieces(block: Block) -> None:
    """Rewrite fp32 products ``scale * x * (1 + f(polynomial of x))`` that are a GELU."""
    for var, _ in block.calls("relax.multiply", "relax.divide"):
        if not is_kernel_float(var):
            continue
        parts = product(block, var)
        if len(parts.factors) != 2 or not near(parts.scale, 0.5):
            continue
        for x, gate in (parts.factors, reversed(parts.factors)):
            if shape_of(x) != shape_of(var):
                continue
            operator = _operator_of_gate(block, gate, x)
            if operator is not None:
                block.replace(var, operator(x))
                break


#: Functions of the gate, one plus which it is: their arguments as polynomials of x, the operator.
GATES = {
    "erf": ({"c1": sqrt(0.5)}, relax.op.nn.gelu),
    "tanh": ({"c1": SLOPE, "c3": SLOPE * 0.044715}, relax.op.nn.gelu_tanh),
}


def _operator_of_gate(
    block: Block, gate: relax.Expr, x: relax.Expr
) -> Callable[[relax.Expr], relax.Expr] | None:
    """``gelu`` or ``gelu_tanh`` if the expression is one plus the function of x that they have."""
    for name, (expected, operator) in GATES.items():
        found = find(block, gate, plus(call(name, "argument"), 1.0))
        argument = None if found is None else polynomial(block, found["argument"], x)
        if argument is not None and argument.has(**expected):
            return operator
    return None
