"""Turn the importer's cast to int32, which wraps by arithmetic, into a cast, which wraps as well.

m = t mod 2^32,   int32(where(m >= 2^31, m - 2^32, m))  =  int32(t)        t of int64
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, dtype_of, scalar_of

WRAP = 2**32


def cast_that_wraps(block: Block) -> None:
    """Rewrite casts from int64 to int32."""
    for var, call in block.calls("relax.astype"):
        if dtype_of(var) != "int32" or dtype_of(call.args[0]) != "int64":
            continue
        chosen = block.call(call.args[0], "relax.where")
        if chosen is None:
            continue
        condition, lowered, rest = chosen.args
        remainder = block.call(rest, "relax.floor_mod")
        large = block.call(condition, "relax.greater_equal")
        difference = block.call(lowered, "relax.subtract")
        if remainder is None or large is None or difference is None:
            continue
        known = (
            scalar_of(remainder.args[1]) == WRAP
            and large.args[0] == rest
            and scalar_of(large.args[1]) == WRAP // 2
            and difference.args[0] == rest
            and scalar_of(difference.args[1]) == WRAP
        )
        if known:
            block.replace(var, relax.op.astype(remainder.args[0], "int32"))
