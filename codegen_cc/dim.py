"""Dimensions: integers, or expressions of symbols that the caller's shapes decide at run time.

A symbolic dimension is a SymPy expression of positive integer symbols, such as ``n`` or
``floor((h + 1)/2)``.  Sums and products of dimensions stay canonical, so that two equal strides
compare equal whichever way they came about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import sympy

Dim = int | sympy.Expr

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

#: Values that stand for the symbols where a decision only needs *some* order of magnitude.
_SURROGATE = 10007


def symbol(name: str) -> sympy.Symbol:
    """The dimension of that name. Raises ``ValueError`` where it is no C identifier."""
    if not _NAME.match(name):
        raise ValueError(f"dimension name {name!r}; need letters, digits and underscores")
    return sympy.Symbol(name, integer=True, positive=True)


def parse_dim(value: int | str) -> Dim:
    """Read a dimension back from JSON: an integer, or the text of an expression."""
    if isinstance(value, int):
        return value
    names = {n: symbol(n) for n in re.findall(r"[A-Za-z_]\w*", value) if n not in ("floor", "Mod")}
    parsed = sympy.parse_expr(value, local_dict={**names, "floor": sympy.floor, "Mod": sympy.Mod})
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
