"""What functions and expressions consist of, in order."""

from __future__ import annotations

from tvm import relax


def bindings_of(func: relax.Function) -> list[relax.Binding]:
    """The bindings of all blocks of a function; none of branches or of functions inside."""
    return [binding for block in func.body.blocks for binding in block.bindings]


def items_of(expr: relax.Expr) -> list[relax.Expr]:
    """The items of a tuple that is written out; any other expression is one item."""
    return list(expr.fields) if isinstance(expr, relax.Tuple) else [expr]


def operands_of(call: relax.Call) -> list[relax.Expr]:
    """The arguments of a call, and the items of those that are tuples."""
    return [item for argument in call.args for item in items_of(argument)]
