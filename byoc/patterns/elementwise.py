"""Rows of elementwise functions of two tensors."""

from __future__ import annotations

from tvm import relax

from .row import ACTIVATION, Candidate, Row, candidate

BINARY = {
    "relax.add": "add",
    "relax.subtract": "sub",
    "relax.multiply": "mul",
    "relax.divide": "div",
    "relax.maximum": "max",
    "relax.minimum": "min",
    "relax.power": "pow",
}


def build_binary(call: relax.Call) -> Candidate:
    """Operands broadcast to the result; a scalar constant is an operand like any other."""
    pairs = zip(("lhs", "rhs"), call.args, strict=True)
    return candidate("binary", call, pairs, {"kind": BINARY[call.op.name]})


BINARY_ROWS = tuple(Row(name, build_binary, (ACTIVATION,)) for name in BINARY)
