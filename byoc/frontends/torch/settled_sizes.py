"""What conditions and ranges of sizes settle in the sizes that are computed from them.

A sequence that is padded to a multiple of 128, and was traced as one block of that length, gives
ceil(n/128) = 1 as a condition; its padded length is 128, without a look at the call. Of an axis of
at most 256, min(n, 256) is n. The library refuses sizes for which that does not hold.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import sympy

from byoc.deploy.condition_text import ConditionText, parsed
from byoc.deploy.metadata import SymbolRange
from codegen_cc.dim import (
    Dim,
    above_zero,
    at_most,
    larger,
    normal,
    remainder,
    rounded_quotient,
    smaller,
    symbol,
)

_ARITHMETIC: dict[str, Callable[[Any, Any], Dim]] = {
    **{"Add": operator.add, "Sub": operator.sub, "Mult": operator.mul},
    **{"FloorDiv": rounded_quotient, "Mod": remainder},
}

#: Which side of a comparison is no less than the other.
_GREATER = {ast.LtE: 1, ast.Lt: 1, ast.GtE: 0, ast.Gt: 0}


class SettledSizes:
    """Sizes in their simplest form, for all that a program's conditions and ranges allow."""

    def __init__(self, conditions: Iterable[str] = (), ranges: Iterable[SymbolRange] = ()) -> None:
        self._bounds = {symbol(known.name): known for known in ranges}
        self._known: dict[sympy.Expr, Dim] = {}
        for text in conditions:
            nothing = _that_is_nothing(parsed(text))
            rounded, value = _solved(sympy.sympify(self.of(nothing)))
            if rounded is not None:
                self._known[rounded] = value

    def of(self, dim: Dim) -> Dim:
        """A dimension, without the roundings and extremes that are known."""
        for rounded, value in self._known.items():
            if isinstance(dim, sympy.Expr) and dim.has(rounded):
                dim = normal(dim.xreplace({rounded: value}))
        for extreme in () if isinstance(dim, int) else dim.atoms(sympy.Max):
            value = self._decided(next((part for part in extreme.args if part != 0), 0))
            if value is not None and isinstance(dim, sympy.Expr):
                dim = normal(dim.xreplace({extreme: value}))
        return dim

    def _decided(self, value: Dim) -> Dim | None:
        """max(0, value) by the ranges of symbols; None where they do not tell."""
        steps = {known: sympy.Dummy(integer=True, nonnegative=True) for known in self._bounds}
        for known, step in steps.items():
            bounds = self._bounds[known]
            ends = [bounds.least + step] if bounds.least else []
            if bounds.most is not None:
                ends.append(bounds.most - step)
            for end in ends:
                moved = sympy.sympify(value).xreplace({known: end})
                if at_most(moved, 0):
                    return 0
                if at_most(0, moved):
                    return value
        return None


class _Whole(ConditionText[Dim]):
    """Whole numbers, as dimensions; whatever else is no piece of a condition here."""

    def number(self, value: bool | int | float) -> Dim:
        if type(value) is not int:
            raise self.unfit(value)
        return value

    def symbol(self, name: str) -> Dim:
        return symbol(name)

    def arithmetic(self, kind: str, left: Dim, right: Dim) -> Dim:
        if (apply := _ARITHMETIC.get(kind)) is None:
            raise self.unfit(kind)
        return normal(apply(left, right))

    def minus(self, given: Dim) -> Dim:
        return normal(-given)

    def function(self, name: str, given: Sequence[Dim]) -> Dim:
        if (choose := {"max": larger, "min": smaller}.get(name)) is None:
            raise self.unfit(name)
        return reduce(choose, given)


_WHOLE = _Whole()


def _that_is_nothing(tree: ast.expr) -> Dim:
    """What is 0 where a condition holds; 0 of one that says nothing of the kind."""
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
        return 0
    try:
        sides = [_WHOLE.of(tree.left), _WHOLE.of(tree.comparators[0])]
    except (ValueError, ZeroDivisionError):
        return 0
    if isinstance(tree.ops[0], ast.Eq):
        return normal(sides[0] - sides[1])
    greater = _GREATER.get(type(tree.ops[0]))
    if greater is None:
        return 0
    return above_zero(normal(sides[1 - greater] - sides[greater]))


def _solved(nothing: sympy.Expr) -> tuple[sympy.Expr | None, Dim]:
    """The outermost rounding or extreme of an expression that is 0, and what it is then."""
    for part in sorted(nothing.atoms(sympy.floor, sympy.Max), key=sympy.count_ops, reverse=True):
        factor = nothing.coeff(part)
        rest = sympy.expand(nothing - factor * part)
        if factor.is_Integer and factor != 0 and not rest.has(part):
            value = sympy.expand(-rest / factor)
            # One rounding for another is no simpler, and Relax would find the former again.
            plain = value.is_integer and not value.has(sympy.floor, sympy.Max)
            return (part, normal(value)) if plain else (None, 0)
    return None, 0
