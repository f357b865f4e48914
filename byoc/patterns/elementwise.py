"""Rows of elementwise functions of several tensors, and of those on integers and booleans."""

from __future__ import annotations

from tvm import relax

from byoc.patterns.row import Candidate, Row, candidate, plain_row

BINARY = {
    "relax.add": "add",
    "relax.subtract": "sub",
    "relax.multiply": "mul",
    "relax.divide": "div",
    "relax.maximum": "max",
    "relax.minimum": "min",
    "relax.power": "pow",
    "relax.mod": "mod",
    "relax.bitwise_and": "bit_and",
    "relax.bitwise_or": "bit_or",
    "relax.bitwise_xor": "bit_xor",
    "relax.left_shift": "shift_left",
    "relax.right_shift": "shift_right",
    "relax.floor_divide": "floor_div",
    "relax.floor_mod": "floor_mod",
}

COMPARISONS = {
    f"relax.{kind}": kind
    for kind in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
}

LOGICAL = {"relax.logical_and": "and", "relax.logical_or": "or", "relax.logical_xor": "xor"}


def build_isnan(call: relax.Call) -> Candidate:
    """Only NaN differs from itself; the operator stays, as TVM takes ``x != x`` for false."""
    pairs = (("lhs", call.args[0]), ("rhs", call.args[0]))
    return candidate("compare", call, pairs, {"kind": "not_equal"})


BINARY_ROWS = (
    # Operands broadcast to the result; a scalar constant is an operand like any other.
    *(
        plain_row(name, op, "lhs", "rhs", kind=kind)
        for op, kinds in (("binary", BINARY), ("compare", COMPARISONS), ("logical", LOGICAL))
        for name, kind in kinds.items()
    ),
    Row("relax.isnan", build_isnan, "compare"),
    plain_row("relax.logical_not", "unary", "input", kind="not", alpha=0.0, beta=0.0),
    plain_row("relax.where", "where", "condition", "lhs", "rhs"),
    plain_row("relax.astype", "cast", "input"),
)
