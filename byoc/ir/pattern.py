"""Patterns of expressions, written as the formulas that they are.

    SILU = times("x", call("sigmoid", "x"))

A pattern is one of these:

- a text: any expression, and the same one wherever the text stands again;
- a number: a constant of one element that has this value;
- ``Number("alpha")``: a constant of one element, whatever its value;
- ``call("exp", ...)``: a variable of the block that is bound to such a call;
- ``plus`` and ``times``: the same of a sum or product, whose operands may stand in either order;
- ``either``: the first of several patterns that fits together with the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tvm import relax

from byoc.ir.dataflow import Block, scalar_of


@dataclass(frozen=True)
class Number:
    """A constant of one element, found under its name."""

    name: str


@dataclass(frozen=True)
class _Call:
    operators: tuple[str, ...]
    operands: tuple[Pattern, ...]
    name: str
    where: Callable[[relax.Call], bool] | None
    commutes: bool


@dataclass(frozen=True)
class _Either:
    patterns: tuple[Pattern, ...]


Pattern = str | float | int | Number | _Call | _Either


def call(
    operators: str,
    *operands: Pattern,
    name: str = "",
    where: Callable[[relax.Call], bool] | None = None,
) -> Pattern:
    """A call of one of the operators, which stand in a text without their ``relax.``.

    Operands behind those that are named may be anything.  The variable is found under ``name``;
    ``where`` tells whether the call's attributes fit.
    """
    return _Call(tuple(f"relax.{o}" for o in operators.split()), operands, name, where, False)


def plus(left: Pattern, right: Pattern) -> Pattern:
    """A sum."""
    return _Call(("relax.add",), (left, right), "", None, True)


def times(left: Pattern, right: Pattern, name: str = "") -> Pattern:
    """A product, element by element."""
    return _Call(("relax.multiply",), (left, right), name, None, True)


def either(*patterns: Pattern) -> Pattern:
    """The first of these that fits."""
    return _Either(patterns)


@dataclass(frozen=True)
class Found:
    """What the names of a pattern stand for, and the variables of its calls, the last one first."""

    bindings: tuple[relax.Var, ...] = ()
    expressions: dict[str, relax.Expr] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> relax.Expr:
        return self.expressions[name]

    def get(self, name: str) -> relax.Expr | None:
        """The same, and None for a name in a part of the pattern that was not needed."""
        return self.expressions.get(name)


def find(block: Block, expr: relax.Expr, pattern: Pattern) -> Found | None:
    """What a pattern stands for in an expression; None where it does not fit."""
    return next(_fits(block, expr, pattern, Found()), None)


def _fits(block: Block, expr: relax.Expr, pattern: Pattern, found: Found) -> Iterator[Found]:
    if isinstance(pattern, str):
        known = found.expressions.get(pattern)
        if known is None:
            yield Found(found.bindings, found.expressions | {pattern: expr}, found.numbers)
        elif known == expr:
            yield found
    elif isinstance(pattern, _Either):
        for one in pattern.patterns:
            yield from _fits(block, expr, one, found)
    elif isinstance(pattern, _Call):
        value = block.call(expr, *pattern.operators)
        if value is None or not (pattern.where is None or pattern.where(value)):
            return
        for here in _fits(block, expr, pattern.name, found) if pattern.name else (found,):
            inside = Found((*here.bindings, expr), here.expressions, here.numbers)
            yield from _all_fit(block, value.args, pattern.operands, inside)
            if pattern.commutes:
                yield from _all_fit(block, tuple(reversed(value.args)), pattern.operands, inside)
    elif (number := scalar_of(expr)) is not None:
        if isinstance(pattern, Number):
            yield Found(found.bindings, found.expressions, found.numbers | {pattern.name: number})
        elif number == pattern:
            yield found


def _all_fit(
    block: Block, operands: Sequence[relax.Expr], patterns: Sequence[Pattern], found: Found
) -> Iterator[Found]:
    if not patterns:
        yield found
        return
    for first in _fits(block, operands[0], patterns[0], found):
        yield from _all_fit(block, operands[1:], patterns[1:], first)
