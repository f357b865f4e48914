"""Turn the importer's casts, which wrap by arithmetic, into casts, which wrap as well.

m = t mod 2^32,   int32(where(m >= 2^31, m - 2^32, m))  =  int32(t)        t of int64
m = t & 255,      int8(where(m >= 128, m - 256, m))     =  int8(t)         t of int32
                  uint8(m)                              =  uint8(t)
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.ir.dataflow import Block, dtype_of, scalar_of

#: By the dtype that is cast to: the one before, and how the importer takes the remainder.
WRAPS = {
    "int32": ("int64", "relax.floor_mod", 2**32),
    "int8": ("int32", "relax.bitwise_and", 2**8 - 1),
    "uint8": ("int32", "relax.bitwise_and", 2**8 - 1),
}


def cast_that_wraps(block: Block) -> None:
    """Rewrite casts from int64 to int32, and from int32 to 8 bits."""
    for var, call in block.calls("relax.astype"):
        dtype, source = dtype_of(var), call.args[0]
        before, operator, number = WRAPS.get(dtype, ("", "", 0))
        if dtype_of(source) != before:
            continue
        rest = source if dtype == "uint8" else _signed(block, source, 8 * np.dtype(dtype).itemsize)
        remainder = block.call(rest, operator) if rest is not None else None
        if remainder is not None and scalar_of(remainder.args[1]) == number:
            block.replace(var, relax.op.astype(remainder.args[0], dtype))


def _signed(block: Block, value: relax.Expr, bits: int) -> relax.Expr | None:
    """The remainder of 2^bits that a choice turns into a signed number; None for other values."""
    chosen = block.call(value, "relax.where")
    if chosen is None:
        return None
    condition, lowered, rest = chosen.args
    large = block.call(condition, "relax.greater_equal")
    difference = block.call(lowered, "relax.subtract")
    if large is None or difference is None:
        return None
    known = (
        large.args[0] == rest
        and scalar_of(large.args[1]) == 2 ** (bits - 1)
        and difference.args[0] == rest
        and scalar_of(difference.args[1]) == 2**bits
    )
    return rest if known else None
