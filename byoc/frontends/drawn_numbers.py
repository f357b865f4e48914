"""Random numbers: the same at every run, different for every node and seed.

    u[i] = (hash(i, seed) + 1/2) / 2^23             uniform in (0, 1)
    z[i] = sqrt(-2 ln u[i]) cos(2 pi u'[i])         normal, of two hashes

A compiled model is a function of its inputs; a node without a seed gets one from its name.  No two
engines draw the same numbers.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence

from tvm import te, tirx

#: Bits of a hash, of those that become a number, and how often they are mixed. With 24 bits the
#: greatest number would round to 1.
_MASK, _BITS, _ROUNDS = (1 << 31) - 1, 23, 3


def seed_of(name: str) -> int:
    """The seed of a node that has none."""
    return zlib.crc32(name.encode())


def drawn(
    extents: Sequence[int | tirx.Expr],
    seed: int,
    normal: bool,
    begin: float = 0.0,
    width: float = 1.0,
) -> Callable[[], te.Tensor]:
    """Loops that draw float32: normal ones of a mean and a deviation, or uniform ones between
    ``begin`` and ``begin + width``."""

    def loops() -> te.Tensor:
        def at(*place: tirx.Var) -> tirx.Expr:
            index: tirx.Expr = tirx.const(0, "int64")
            for i, extent in zip(place, extents, strict=True):
                index = index * extent + i
            value = _uniform(index, seed)
            if normal:
                angle = _uniform(index, ~seed) * tirx.const(2 * math.pi, "float32")
                value = tirx.sqrt(tirx.log(value) * tirx.const(-2, "float32")) * tirx.cos(angle)
            return value * tirx.const(width, "float32") + tirx.const(begin, "float32")

        return te.compute(extents, at, name="random")

    return loops


def _uniform(index: tirx.Expr, seed: int) -> tirx.Expr:
    """A hash of an index whose bits depend on all bits of it, as a number in (0, 1).

    Of int64 without overflow: TVM's simplifier gets products of uint32 wrong that do overflow.
    """

    def c(value: int) -> tirx.Expr:
        return tirx.const(value, "int64")

    begin = (seed * 0x9E3779B97F4A7C15) % (1 << 47)
    x = index * c(40503) + c(begin)
    for _ in range(_ROUNDS):
        x = tirx.bitwise_and(x ^ tirx.shift_right(x, c(15)), c(_MASK)) * c(0x2C1B3C6D)
        x = tirx.bitwise_and(x, c(_MASK))
    top = tirx.Cast("float32", tirx.shift_right(x, c(31 - _BITS)))
    return (top + tirx.const(0.5, "float32")) * tirx.const(2.0**-_BITS, "float32")
