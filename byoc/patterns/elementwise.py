"""Rows of elementwise functions of several tensors, and of those on integers and booleans."""

from __future__ import annotations

from tvm import relax

from byoc.patterns.row import Candidate, Row, candidate

BINARY = {
    "relax.add": "add",
    "relax.subtract": "sub",
    "relax.multiply": "mul",
    "relax.divide": "div",
    "relax.maximum": "max",
    "relax.minimum": "min",
    "relax.power": "pow",
}

COMPARISONS = {
    f"relax.{kind}": kind
    for kind in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
}

LOGICAL = {"relax.logical_and": "and", "relax.logical_or": "or", "relax.logical_xor": "xor"}


def build_binary(call: relax.Call) -> Candidate:
    """Operands broadcast to the result; a scalar constant is an operand like any other."""
    pairs = zip(("lhs", "rhs"), call.args, strict=True)
    return candidate("binary", call, pairs, {"kind": BINARY[call.op.name]})


def build_compare(call: relax.Call) -> Candidate:
    """Both sides are repeated to the result, which is boolean."""
    pairs = zip(("lhs", "rhs"), call.args, strict=True)
    return candidate("compare", call, pairs, {"kind": COMPARISONS[call.op.name]})


def build_isnan(call: relax.Call) -> Candidate:
    """Only NaN differs from itself; the operator stays, as TVM takes ``x != x`` for false."""
    pairs = (("lhs", call.args[0]), ("rhs", call.args[0]))
    return candidate("compare", call, pairs, {"kind": "not_equal"})


def build_logical(call: relax.Call) -> Candidate:
    """Booleans to booleans."""
    pairs = zip(("lhs", "rhs"), call.args, strict=True)
    return candidate("logical", call, pairs, {"kind": LOGICAL[call.op.name]})


def build_not(call: relax.Call) -> Candidate:
    """The one unary function of booleans."""
    attrs = {"kind": "not", "alpha": 0.0, "beta": 0.0}
    return candidate("unary", call, [("input", call.args[0])], attrs)


def build_where(call: relax.Call) -> Candidate:
    """A boolean condition; both values have the dtype of the result."""
    pairs = zip(("condition", "lhs", "rhs"), call.args, strict=True)
    return candidate("where", call, pairs)


def build_cast(call: relax.Call) -> Candidate:
    """The node's dtype is what the values become."""
    return candidate("cast", call, [("input", call.args[0])])


BINARY_ROWS = (
    *(Row(name, build_binary, "binary") for name in BINARY),
    *(Row(name, build_compare, "compare") for name in COMPARISONS),
    Row("relax.isnan", build_isnan, "compare"),
    *(Row(name, build_logical, "logical") for name in LOGICAL),
    Row("relax.logical_not", build_not, "unary"),
    Row("relax.where", build_where, "where"),
    Row("relax.astype", build_cast, "cast"),
)
