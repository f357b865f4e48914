"""Turn the importer's casts, which wrap by arithmetic, into casts, which wrap as well.

m = t mod 2^32,   int32(where(m >= 2^31, m - 2^32, m))  =  int32(t)        t of int64
m = t & 255,      int8(where(m >= 128, m - 256, m))     =  int8(t)         t of int32
                  uint8(m)                              =  uint8(t)
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, dtype_of
from byoc.ir.pattern import Pattern, call, find


def _signed(remainder: Pattern, bits: int) -> Pattern:
    """The remainder ``m`` of 2^bits as a choice turns it into a signed number."""
    is_large = call("greater_equal", "m", 2 ** (bits - 1))
    return call("where", is_large, call("subtract", "m", 2**bits), remainder)


_WORD = call("floor_mod", "t", 2**32, name="m")
_BYTE = call("bitwise_and", "t", 2**8 - 1, name="m")

#: By the dtype that is cast to: the one before, and how the importer writes it.
WRAPS = {
    "int32": ("int64", _signed(_WORD, 32)),
    "int8": ("int32", _signed(_BYTE, 8)),
    "uint8": ("int32", _BYTE),
}


def cast_that_wraps(block: Block) -> None:
    """Rewrite casts from int64 to int32, and from int32 to 8 bits."""
    for var, cast in block.calls("relax.astype"):
        dtype, source = dtype_of(var), cast.args[0]
        before, wrapped = WRAPS.get(dtype, ("", ""))
        found = find(block, source, wrapped) if dtype_of(source) == before else None
        if found is not None:
            block.replace(var, relax.op.astype(found["t"], dtype))
