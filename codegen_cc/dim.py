"""Dimensions: integers, or expressions of symbols that the caller's shapes decide at run time.

A symbolic dimension is a SymPy expression of positive integer symbols, such as ``n`` or
``floor((h + 1)/2)``.  Sums and products of dimensions stay canonical, so that two equal strides
compare equal whichever way they came about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import sympy

Dim = int | sympy.Expr

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

#: Functions in the texts of dimensions; no symbol has their name.
FUNCTIONS = {"floor": sympy.floor, "Mod": sympy.Mod}

#: Values that stand for the symbols where a decision only needs *some* order of magnitude.
_SURROGATE = 10007

#: No extent is as large: bounds of slices that mean the end of an axis are.
BEYOND = 2**31 - 1


def symbol(name: str) -> sympy.Symbol:
    """The dimension of that name. Raises ``ValueError`` where it is no C identifier."""
    if not _NAME.match(name):
        raise ValueError(f"dimension name {name!r}; need letters, digits and underscores")
    return sympy.Symbol(name, integer=True, positive=True)


def parse_dim(value: int | str) -> Dim:
    """Read a dimension back from JSON: an integer, or the text of an expression."""
    return value if isinstance(value, int) else _parsed(value)


@lru_cache(4096)
def _parsed(value: str) -> Dim:
    names = {n: symbol(n) for n in re.findall(r"[A-Za-z_]\w*", value) if n not in FUNCTIONS}
    parsed = sympy.parse_expr(value, local_dict={**names, **FUNCTIONS})
    return int(parsed) if parsed.is_Integer else parsed


def dim_json(dim: Dim) -> int | str:
    """A dimension as JSON holds it."""
    return dim if isinstance(dim, int) else str(dim)


def product(dims: Iterable[Dim]) -> Dim:
    """The product of dimensions, expanded."""
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result if isinstance(result, int) else normal(result)


def normal(dim: Dim) -> Dim:
    """The canonical form: an ``int`` where it is one, else expanded."""
    if isinstance(dim, int):
        return dim
    expanded = sympy.expand(dim)
    return int(expanded) if expanded.is_Integer else expanded


def same(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are equal for all values of their symbols."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return normal(a - b) == 0


def at_most(a: Dim, b: Dim) -> bool | None:
    """Whether ``a <= b`` for all values of the symbols; None where that depends on them."""
    gap = normal(b - a)
    if isinstance(gap, int):
        return gap >= 0
    # As symbols are 1 at least, coefficients tell the sign of an expression of what is above 1.
    above = {
        s: 1 + sympy.Symbol(f"{s.name}_above", integer=True, nonnegative=True)
        for s in symbols([gap])
    }
    gap = sympy.expand(gap.subs(above))
    if gap.is_nonnegative:
        return True
    return False if gap.is_negative else None


def clamped(bound: Dim, extent: Dim) -> Dim | None:
    """A bound of a slice within 0 and the extent, counted from the end where it is negative.

    None where it depends on the symbols' values which of these it is.
    """
    if isinstance(bound, int) and abs(bound) >= BEYOND:
        return extent if bound > 0 else 0
    if at_most(0, bound) is False:
        bound = bound + extent
    if at_most(0, bound) is False:
        return 0
    inside = at_most(bound, extent)
    if at_most(0, bound) is None or inside is None:
        return None
    return normal(bound) if inside else extent


def slice_bounds(begin: Dim, end: Dim, extent: Dim) -> tuple[Dim, Dim] | None:
    """Begin and end of a slice with a positive step, clamped, in order; None as in ``clamped``."""
    first, last = clamped(begin, extent), clamped(end, extent)
    if first is None or last is None:
        return None
    ordered = at_most(first, last)
    return None if ordered is None else (first, last if ordered else first)


def is_static(dims: Iterable[Dim]) -> bool:
    """Whether all dimensions are plain integers."""
    return all(isinstance(dim, int) for dim in dims)


def estimate(dim: Dim) -> int:
    """A number in place of a dimension, for choices that any order would do for."""
    if isinstance(dim, int):
        return dim
    values = {s: _SURROGATE + 2 * i for i, s in enumerate(symbols([dim]))}
    return int(dim.subs(values))


def at_unit(dim: Dim) -> int:
    """The value of a dimension where every symbol is 1: work per item, for reports."""
    return dim if isinstance(dim, int) else int(dim.subs({s: 1 for s in symbols([dim])}))


def symbols(dims: Iterable[Dim]) -> list[sympy.Symbol]:
    """The symbols of dimensions, by name."""
    found = {s for dim in dims if not isinstance(dim, int) for s in dim.free_symbols}
    return sorted(found, key=lambda s: s.name)


def c_name(dim: sympy.Symbol) -> str:
    """The C variable that holds a symbol; no other name in generated code begins so."""
    return f"dim_{dim.name}"


def c_text(dim: Dim) -> str:
    """A dimension as a C expression of the ``int64_t`` variables of its symbols."""
    if isinstance(dim, int):
        return str(dim)
    if isinstance(dim, sympy.Symbol):
        return c_name(dim)
    if isinstance(dim, sympy.Integer):
        return str(int(dim))
    if isinstance(dim, sympy.floor):
        numerator, denominator = sympy.fraction(sympy.together(dim.args[0]))
        return f"({c_text(sympy.expand(numerator))} / {c_text(denominator)})"
    if isinstance(dim, sympy.Mod):
        return f"({c_text(dim.args[0])} % {c_text(dim.args[1])})"
    if isinstance(dim, sympy.Pow) and dim.exp.is_Integer and dim.exp > 0:
        return "(" + " * ".join([c_text(dim.base)] * int(dim.exp)) + ")"
    if isinstance(dim, sympy.Add | sympy.Mul):
        sign = " + " if isinstance(dim, sympy.Add) else " * "
        return "(" + sign.join(c_text(argument) for argument in dim.args) + ")"
    raise ValueError(f"dimension {dim} cannot be written in C")
