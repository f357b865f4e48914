"""Let ``main`` itself refuse the sizes that a model was not made for.

``byoc.load`` looks at the ranges and conditions in a library's metadata before a call. The virtual
machine knows nothing of these, and what they settle is computed in no other way: a sequence that is
padded to 128 has that length. So ``main`` begins with

    match_cast([1], Shape([Select(n % 4 == 0, 1, 0)]))
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from itertools import takewhile
from typing import Any

import tvm
from tvm import relax, tirx

from byoc.deploy.metadata import Metadata
from byoc.ir.dataflow import with_blocks
from byoc.ir.symbols import told_by
from codegen_cc.region.relax_dims import dim_text

Expr = tvm.ir.Expr

_ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: tirx.Add,
    ast.Sub: tirx.Sub,
    ast.Mult: tirx.Mul,
}
_COMPARISONS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: tirx.EQ,
    ast.NotEq: tirx.NE,
    ast.Lt: tirx.LT,
    ast.LtE: tirx.LE,
    ast.Gt: tirx.GT,
    ast.GtE: tirx.GE,
}


def check_sizes(mod: tvm.IRModule, metadata: Metadata) -> tvm.IRModule:
    """Add the questions that sizes of inputs answer; the module is not changed.

    Regions ask nothing: ``main`` calls them, or ``byoc.load``, which has asked. Conditions with
    roots are left to that: types of Relax cannot say them.
    """
    main = mod["main"]
    blocks = list(main.body.blocks)
    if not blocks or not (metadata.ranges or metadata.conditions):
        return mod
    first, *others = blocks
    casts = list(takewhile(lambda b: isinstance(b, relax.MatchCast), first.bindings))
    tellers = [*main.params, *(cast.var for cast in casts)]
    symbols = {dim_text(symbol): symbol for teller in tellers for symbol in told_by(teller.ty)}
    found = map(_Question(symbols).of, _needs(metadata))
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


class _Unwritable(Exception):
    """A root, or a power of something unknown, for which Relax has no operator."""


class _Question(ast.NodeVisitor):
    """Writes a condition on symbols as an expression; None where one is unknown, and of roots.

    Quotients by 0 tell nothing, and a condition with one holds, as for ``byoc.load``.
    """

    def __init__(self, symbols: Mapping[str, Expr]) -> None:
        self._symbols = symbols
        self._divisors: list[Expr] = []

    def of(self, text: str) -> Expr | None:
        """Whether a condition holds, as a truth of TIR."""
        try:
            holds = self.visit(ast.parse(text, mode="eval").body)
        except (KeyError, _Unwritable):
            return None
        for divisor in self._divisors:
            holds = tirx.Or(tirx.EQ(divisor, _like(0, divisor)), holds)
        return holds

    def visit_Constant(self, node: ast.Constant) -> Expr:
        """A number or a truth."""
        dtypes = {bool: "bool", int: "int64", float: "float64"}
        return tirx.const(node.value, dtypes[type(node.value)])

    def visit_Name(self, node: ast.Name) -> Expr:
        """A symbol."""
        return self._symbols[node.id]

    def visit_BinOp(self, node: ast.BinOp) -> Expr:
        """Sums, products, quotients and powers."""
        left, right = _alike(self.visit(node.left), self.visit(node.right))
        if isinstance(node.op, ast.Pow):
            return reduce(tirx.Mul, [left] * _count(node.right), _like(1, left))
        if (arithmetic := _ARITHMETIC.get(type(node.op))) is not None:
            return arithmetic(left, right)
        self._divisors.append(right)
        zero = tirx.EQ(right, _like(0, right))
        right = tirx.Select(zero, _like(1, right), right)  # no division by 0 is ever made
        if isinstance(node.op, ast.Div):
            return tirx.Div(_float(left), _float(right))
        if _dtype(left) != "float64":
            whole = tirx.FloorDiv if isinstance(node.op, ast.FloorDiv) else tirx.FloorMod
            return whole(left, right)
        quotient = _float(_floor(tirx.Div(left, right)))
        if isinstance(node.op, ast.FloorDiv):
            return quotient
        return tirx.Sub(left, tirx.Mul(quotient, right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Expr:
        """A number with the other sign, or the other truth."""
        given = self.visit(node.operand)
        return tirx.Not(given) if isinstance(node.op, ast.Not) else tirx.Sub(_like(0, given), given)

    def visit_BoolOp(self, node: ast.BoolOp) -> Expr:
        """All of several truths, or any."""
        return reduce(
            tirx.And if isinstance(node.op, ast.And) else tirx.Or, map(self.visit, node.values)
        )

    def visit_Compare(self, node: ast.Compare) -> Expr:
        """A chain of comparisons."""
        sides = [self.visit(side) for side in (node.left, *node.comparators)]
        pairs = zip(sides, node.ops, sides[1:], strict=False)
        return reduce(tirx.And, [_COMPARISONS[type(op)](*_alike(a, b)) for a, op, b in pairs])

    def visit_Call(self, node: ast.Call) -> Expr:
        """A function of numbers."""
        name, given = ast.unparse(node.func), [self.visit(argument) for argument in node.args]
        if name in ("max", "min"):
            choose = tirx.Max if name == "max" else tirx.Min
            return reduce(lambda a, b: choose(*_alike(a, b)), given)
        (number,) = given
        if name == "float":
            return _float(number)
        if name == "abs":
            return tirx.Max(number, tirx.Sub(_like(0, number), number))
        if name not in _ROUNDINGS:
            raise _Unwritable(name)
        return number if _dtype(number) == "int64" else _ROUNDINGS[name](number)


def _dtype(number: Expr) -> str:
    return str(number.ty.dtype)


def _count(power: ast.expr) -> int:
    """How many factors a power has."""
    if not isinstance(power, ast.Constant) or not isinstance(power.value, int) or power.value < 0:
        raise _Unwritable(ast.unparse(power))
    return power.value


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
    **{"trunc": _trunc, "floor": _floor, "ceil": _ceil, "round": _round},
}
