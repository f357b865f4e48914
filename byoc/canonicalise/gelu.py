"""Turn the pieces of GELU into ``gelu`` or ``gelu_tanh``.

    gelu(x)      = x / 2 * (1 + erf(x / sqrt(2)))
    gelu_tanh(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))

The factors may come in any order and the constants in any place. Rounding differs in the last
bit from one order to another; NaN and infinities come out the same.
"""

from __future__ import annotations

from math import pi, sqrt

from tvm import relax

from byoc.ir.algebra import near, polynomial, product
from byoc.ir.dataflow import Block, is_kernel_float, scalar_of, shape_of

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
            name = _function_of_gate(block, gate, x)
            if name is not None:
                operator = relax.op.nn.gelu if name == "relax.erf" else relax.op.nn.gelu_tanh
                block.replace(var, operator(x))
                break


def _function_of_gate(block: Block, gate: relax.Expr, x: relax.Expr) -> str | None:
    """``relax.erf`` or ``relax.tanh`` if the expression is one plus that function of x."""
    one_plus = block.call(gate, "relax.add")
    if one_plus is None:
        return None
    for inner, other in (one_plus.args, reversed(one_plus.args)):
        if scalar_of(other) != 1.0:
            continue
        for name, expected in (
            ("relax.erf", {"c1": sqrt(0.5)}),
            ("relax.tanh", {"c1": SLOPE, "c3": SLOPE * 0.044715}),
        ):
            function = block.call(inner, name)
            argument = polynomial(block, function.args[0], x) if function is not None else None
            if argument is not None and argument.has(**expected):
                return name
    return None
