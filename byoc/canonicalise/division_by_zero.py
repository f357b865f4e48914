"""Keep divisors of 0 and quotients beyond the range away from TVM's code, which they would end.

Integers, as NumPy gives them, and with it ONNX's reference evaluator:

    a / b = (a / d) * (b != 0)        d = 1 where b is 0, or b is -1 and a the least integer; else b
    a % b = a % d                     d = 1 where b is 0 or -1; else b

The quotient is multiplied, not chosen: within one loop TVM may simplify the side of a choice by its
condition, here ``d`` to ``b``, and computes both sides. What is a size is never -1.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.canonicalise.sizes_as_numbers import is_size
from byoc.ir.dataflow import Block, array_of, dtype_of, op_name
from byoc.ir.pattern import call, find

QUOTIENTS = ("relax.divide", "relax.floor_divide")
REMAINDERS = ("relax.mod", "relax.floor_mod")


def no_division_by_zero(block: Block) -> None:
    """Rewrite divisions of integers whose divisor may be 0, or -1 where a sign is possible."""
    for var, division in block.calls(*QUOTIENTS, *REMAINDERS):
        dtype = dtype_of(var)
        value, divisor = division.args
        if not dtype.startswith(("int", "uint")) or not isinstance(divisor.ty, relax.TensorType):
            continue
        known = array_of(divisor)
        signed = dtype.startswith("int") and not is_size(block, divisor)
        if known is not None and not ((known == 0) | (signed & (known == -1))).any():
            continue
        if known is None and _is_safe(block, divisor):
            continue

        def number(n: int, dtype: str = dtype) -> relax.Expr:
            return relax.const(np.asarray(n, dtype), dtype)

        bad = block.emit(var, relax.op.equal(divisor, number(0)))
        if signed:
            minus = block.emit(var, relax.op.equal(divisor, number(-1)))
            if op_name(division) in QUOTIENTS:
                # TVM holds that no number of 32 bits equals the least one.
                flipped = relax.op.bitwise_xor(value, number(np.iinfo(dtype).max))
                least = relax.op.equal(block.emit(var, flipped), number(-1))
                least = block.emit(var, least)
                minus = block.emit(var, relax.op.logical_and(minus, least))
            bad = block.emit(var, relax.op.logical_or(bad, minus))
        safe = block.emit(var, relax.op.where(bad, number(1), divisor))
        operator = getattr(relax.op, op_name(division).removeprefix("relax."))
        if op_name(division) in REMAINDERS:
            block.replace(var, operator(value, safe))
            continue
        some = block.emit(var, relax.op.not_equal(divisor, number(0)))
        some = block.emit(var, relax.op.astype(some, dtype))
        block.replace(var, relax.op.multiply(block.emit(var, operator(value, safe)), some))


def _is_safe(block: Block, divisor: relax.Expr) -> bool:
    """Whether it is one that this rule made."""
    found = find(block, divisor, call("where", call("equal logical_or"), "one"))
    one = None if found is None else array_of(found["one"])
    return one is not None and one.ndim == 0 and one == 1
