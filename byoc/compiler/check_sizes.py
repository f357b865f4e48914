"""Let ``main`` itself refuse the sizes that a model was not made for.

``byoc.load`` looks at the ranges and conditions in a library's metadata before a call. The virtual
machine knows nothing of these, and what they settle is computed in no other way: a sequence that is
padded to 128 has that length. So ``main`` begins with

    match_cast([1], Shape([Select(n % 4 == 0, 1, 0)]))
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import takewhile
from typing import Any

import tvm
from tvm import relax, tirx

from byoc.deploy.condition_text import ConditionText
from byoc.deploy.metadata import Metadata
from byoc.ir.dataflow import with_blocks
from byoc.ir.symbols import told_by
from codegen_cc.region.relax_dims import dim_text

Expr = tvm.ir.Expr

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": tirx.Add,
    "Sub": tirx.Sub,
    "Mult": tirx.Mul,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    **{"Eq": tirx.EQ, "NotEq": tirx.NE, "Lt": tirx.LT, "LtE": tirx.LE},
    **{"Gt": tirx.GT, "GtE": tirx.GE},
}


def check_sizes(mod: tvm.IRModule, metadata: Metadata) -> tvm.IRModule:
    """Add the questions that sizes of inputs answer; the module is not changed.

    Regions ask nothing: ``main`` calls them, or ``byoc.load``, which has asked. Conditions with
    roots are left to that, as types of Relax cannot say them, and roundings deep within others.
    """
    main = mod["main"]
    blocks = list(main.body.blocks)
    if not blocks or not (metadata.ranges or metadata.conditions):
        return mod
    first, *others = blocks
    casts = list(takewhile(lambda b: isinstance(b, relax.MatchCast), first.bindings))
    tellers = [*main.params, *(cast.var for cast in casts)]
    symbols = {dim_text(symbol): symbol for teller in tellers for symbol in told_by(teller.ty)}
    found = map(_Question(symbols).asked, _needs(metadata))
    one, none = (tirx.IntImm("int64", value) for value in (1, 0))
    asked = [tirx.Select(holds, one, none) for holds in found if holds is not None]
    if not asked:
        return mod
    ty = relax.ShapeType(asked)
    check = relax.MatchCast(relax.Var("sizes", ty), relax.ShapeExpr([one] * len(asked)), ty)
    rest = type(first)(list(first.bindings)[len(casts) :])
    made = [relax.BindingBlock([*casts, check]), rest, *others]
    out = mod.clone()
    out["main"] = with_blocks(main, [block for block in made if block.bindings])
    return out


def _needs(metadata: Metadata) -> Iterator[str]:
    for declared in metadata.ranges:
        if declared.least:
            yield f"{declared.name} >= {declared.least}"
        if declared.most is not None:
            yield f"{declared.name} <= {declared.most}"
    yield from metadata.conditions


#: Most roundings within one another: each is written with two copies of its number and more.
_NESTED = 3


class _Unwritable(Exception):
    """A root, or a power of something unknown, for which Relax has no operator."""


class _Question(ConditionText[Expr]):
    """Writes a condition on symbols as an expression; None where one is unknown, of roots, and of
    what would be too long.

    Quotients by 0 tell nothing, and a condition with one holds, as for ``byoc.load``.
    """

    def __init__(self, symbols: Mapping[str, Expr]) -> None:
        self._symbols = symbols
        self._divisors: list[Expr] = []

    def asked(self, text: str) -> Expr | None:
        """Whether a condition holds, as a truth of TIR."""
        if _nested(ast.parse(text)) > _NESTED:
            return None
        try:
            holds = self.read(text)
        except (KeyError, _Unwritable):
            return None
        for divisor in self._divisors:
            holds = tirx.Or(tirx.EQ(divisor, _like(0, divisor)), holds)
        return holds

    def number(self, value: bool | int | float) -> Expr:
        dtypes = {bool: "bool", int: "int64", float: "float64"}
        return tirx.const(value, dtypes[type(value)])

    def symbol(self, name: str) -> Expr:
        return self._symbols[name]

    def arithmetic(self, kind: str, left: Expr, right: Expr) -> Expr:
        if kind == "Pow":
            return reduce(tirx.Mul, [left] * _count(right), _like(1, left))
        left, right = _alike(left, right)
        if (apply := _ARITHMETIC.get(kind)) is not None:
            return apply(left, right)
        self._divisors.append(right)
        zero = tirx.EQ(right, _like(0, right))
        right = tirx.Select(zero, _like(1, right), right)  # no division by 0 is ever made
        if kind == "Div":
            return tirx.Div(_float(left), _float(right))
        if _dtype(left) != "float64":
            return (tirx.FloorDiv if kind == "FloorDiv" else tirx.FloorMod)(left, right)
        quotient = _float(_floor(tirx.Div(left, right)))
        return quotient if kind == "FloorDiv" else tirx.Sub(left, tirx.Mul(quotient, right))

    def minus(self, given: Expr) -> Expr:
        return tirx.Sub(_like(0, given), given)

    def negation(self, given: Expr) -> Expr:
        return tirx.Not(given)

    def all_of(self, parts: Sequence[Expr]) -> Expr:
        return reduce(tirx.And, parts)

    def any_of(self, parts: Sequence[Expr]) -> Expr:
        return reduce(tirx.Or, parts)

    def comparison(self, kind: str, left: Expr, right: Expr) -> Expr:
        return _COMPARISONS[kind](*_alike(left, right))

    def function(self, name: str, given: Sequence[Expr]) -> Expr:
        if name in ("max", "min"):
            choose = tirx.Max if name == "max" else tirx.Min
            return reduce(lambda a, b: choose(*_alike(a, b)), given)
        (number,) = given
        if name == "float":
            return _float(number)
        if name == "abs":
            return tirx.Max(number, self.minus(number))
        if name not in _ROUNDINGS:
            raise _Unwritable(name)
        return number if _dtype(number) == "int64" else _ROUNDINGS[name](number)


def _nested(tree: ast.AST) -> int:
    """How many roundings stand within one another."""
    inner = max(map(_nested, ast.iter_child_nodes(tree)), default=0)
    return inner + (isinstance(tree, ast.Call) and getattr(tree.func, "id", None) in _ROUNDINGS)


def _dtype(number: Expr) -> str:
    return str(number.ty.dtype)


def _count(power: Expr) -> int:
    """How many factors a power has."""
    if not isinstance(power, tirx.IntImm) or power.value < 0:
        raise _Unwritable(str(power))
    return int(power.value)


def _float(number: Expr) -> Expr:
    return number if _dtype(number) == "float64" else tirx.Cast("float64", number)


def _alike(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """Two numbers, as floats where one is."""
    is_float = "float64" in (_dtype(left), _dtype(right))
    return (_float(left), _float(right)) if is_float else (left, right)


def _like(value: int, number: Expr) -> Expr:
    return tirx.const(value, _dtype(number))


def _trunc(number: Expr) -> Expr:
    return tirx.Cast("int64", number)


def _floor(number: Expr) -> Expr:
    whole = _trunc(number)
    return tirx.Sub(whole, tirx.Cast("int64", tirx.GT(_float(whole), number)))


def _ceil(number: Expr) -> Expr:
    whole = _trunc(number)
    return tirx.Add(whole, tirx.Cast("int64", tirx.LT(_float(whole), number)))


def _round(number: Expr) -> Expr:
    """To the nearest number, or the even one of two."""
    below = _floor(number)
    rest, half = tirx.Sub(number, _float(below)), tirx.const(0.5, "float64")
    is_odd = tirx.EQ(tirx.FloorMod(below, _like(2, below)), _like(1, below))
    up = tirx.Or(tirx.GT(rest, half), tirx.And(tirx.EQ(rest, half), is_odd))
    return tirx.Add(below, tirx.Cast("int64", up))


#: Roundings of floats by operators alone: types of Relax may hold no call.
_ROUNDINGS: dict[str, Callable[[Expr], Expr]] = {
    "trunc": _trunc,
    "floor": _floor,
    "ceil": _ceil,
    "round": _round,
}
