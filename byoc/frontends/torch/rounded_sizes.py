"""Sizes that code computes with floats and rounds, such as ``math.ceil(n / 4)``, as whole numbers.

Python computes in 53 bits, which hold sums and products of sizes with small fractions of powers of
2 as they are. One quotient after these is rounded, of sizes below 2**30 never to a whole number
that it is not: rounding it gives what exact arithmetic gives, also with whole numbers added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import sympy
from torch.utils._sympy import functions

from codegen_cc.dim import Dim, at_most, rounded_quotient

#: Greatest part of a fraction.
_MOST = 1 << 10


def rounded_size(expr: sympy.Basic, dim: Callable[[sympy.Basic], Dim]) -> Dim | None:
    """A rounding as a dimension; ``dim`` gives those of whole numbers. None for other expressions,
    and for roundings of what floats round themselves."""
    if expr.func not in (functions.CeilToInt, functions.FloorToInt, functions.TruncToInt):
        return None
    found = _as_quotient(expr.args[0], dim)
    if found is None:
        return None
    above, below = found
    if expr.func is functions.CeilToInt:
        above = above + below - 1
    elif expr.func is functions.TruncToInt and not at_most(0, above):
        return None  # it is rounded to 0, not down
    return above if below == 1 else rounded_quotient(above, below)


def _as_quotient(expr: sympy.Basic, dim: Callable[[sympy.Basic], Dim]) -> tuple[Dim, int] | None:
    """A whole number and what it is divided by, which is above 0."""
    if expr.func in (functions.IntTrueDiv, functions.FloatTrueDiv):
        divisor = _fraction(expr.args[1])
        return _times(_as_quotient(expr.args[0], dim), 1 / divisor if divisor else None)
    if expr.func is functions.ToFloat:
        return dim(expr.args[0]), 1
    if expr.is_number and not expr.is_integer:
        return _times((1, 1), _fraction(expr))
    if expr.is_integer:
        return dim(expr), 1
    if expr.func is sympy.Mul and len(expr.args) == 2:
        return _times(_as_quotient(expr.args[1], dim), _fraction(expr.args[0]))
    if expr.func is sympy.Add:
        return _sum([_as_quotient(part, dim) for part in expr.args])
    return None


def _times(quotient: tuple[Dim, int] | None, factor: Fraction | None) -> tuple[Dim, int] | None:
    """A product, where floats had nothing to round so far."""
    if quotient is None or factor is None or not _is_exact(quotient[1]):
        return None
    return quotient[0] * factor.numerator, quotient[1] * factor.denominator


def _sum(parts: Sequence[tuple[Dim, int] | None]) -> tuple[Dim, int] | None:
    """A sum; of a quotient that floats rounded and whole numbers, ``n / 5 + 1``, alone: it is whole
    where the quotient is, and floats hold that as it is."""
    known = [part for part in parts if part is not None]
    rounded = [part for part in known if not _is_exact(part[1])]
    whole = [part for part in known if part[1] == 1]
    if len(known) < len(parts) or (rounded and len(whole) + 1 < len(known)):
        return None
    below = max(part[1] for part in known)
    return sum(part[0] * (below // part[1]) for part in known), below


def _is_exact(below: int) -> bool:
    """Whether floats hold quotients by it as they are."""
    return below & (below - 1) == 0


def _fraction(number: sympy.Basic) -> Fraction | None:
    """A known number other than 0, where it is a fraction of small ones."""
    if not number.is_number:
        return None
    share = Fraction(int(number)) if number.is_Integer else Fraction(float(number))
    is_small = max(abs(share.numerator), share.denominator) <= _MOST
    return share if share and is_small else None
