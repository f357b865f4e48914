"""Conditions on the sizes of axes that a model was made for, such as ``n % 4 == 0``."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from byoc.deploy.metadata import SymbolRange
from byoc.errors import LoadError

Sizes = Mapping[str, int]

_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{"max": max, "min": min, "abs": abs, "float": float, "sqrt": math.sqrt},
    **{"trunc": math.trunc, "floor": math.floor, "ceil": math.ceil, "round": round},
}


@dataclass(frozen=True)
class Condition:
    """A condition, and the ``names`` of sizes in it."""

    text: str
    names: frozenset[str]
    _value: Callable[[Sizes], Any]

    def holds(self, sizes: Sizes) -> bool:
        """Whether sizes meet it. Where they do not tell, as of quotients by 0, they do."""
        return self.tells(sizes) is not False

    def tells(self, sizes: Sizes) -> bool | None:
        """Whether sizes meet it; None where they do not tell."""
        try:
            return bool(self._value(sizes))
        except (KeyError, ZeroDivisionError):
            return None


@lru_cache(1024)
def condition(text: str) -> Condition:
    """Read a condition. Raises ``ValueError`` for what is none."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no condition") from error
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - _FUNCTIONS.keys()
    return Condition(text, frozenset(names), _compiled(tree))


class Demands:
    """What sizes of a model's symbols must meet: the ranges and the conditions of its metadata.

    Raises ``LoadError`` for a condition that is none.
    """

    def __init__(self, ranges: Iterable[SymbolRange], conditions: Iterable[str]) -> None:
        self._ranges = tuple(ranges)
        try:
            self._conditions = [condition(text) for text in conditions]
        except ValueError as error:
            raise LoadError(f"its metadata are damaged ({error}); compile it again") from error
        self._met: set[tuple[int, ...]] = set()

    def problem(self, sizes: Sizes) -> str:
        """What is wrong with sizes; empty where nothing is."""
        for declared in self._ranges:
            value = sizes.get(declared.name)
            if value is not None and (problem := declared.refuses(value)):
                return problem
        if not self._conditions or (known := tuple(sizes.values())) in self._met:
            return ""
        for needed in self._conditions:
            if not needed.holds(sizes):
                told = ", ".join(f"{name} = {sizes[name]}" for name in sorted(needed.names))
                return f"; it needs {needed.text}, where {told}"
        if len(self._met) < _REMEMBERED:
            self._met.add(known)
        return ""


#: So many sizes are not looked at again.
_REMEMBERED = 1024


def _compiled(node: ast.AST) -> Callable[[Sizes], Any]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        value = node.value
        return lambda sizes: value
    if isinstance(node, ast.Name):
        name = node.id
        return lambda sizes: sizes[name]
    if isinstance(node, ast.BinOp):
        left, right, apply = _compiled(node.left), _compiled(node.right), _operator(node.op)
        return lambda sizes: apply(left(sizes), right(sizes))
    if isinstance(node, ast.UnaryOp):
        given = _compiled(node.operand)
        if isinstance(node.op, ast.Not):
            return lambda sizes: not given(sizes)
        if isinstance(node.op, ast.USub):
            return lambda sizes: -given(sizes)
    if isinstance(node, ast.BoolOp):
        parts = [_compiled(value) for value in node.values]
        gather = all if isinstance(node.op, ast.And) else any
        return lambda sizes: gather(part(sizes) for part in parts)
    if isinstance(node, ast.Compare):
        return _compared(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        function = _FUNCTIONS.get(node.func.id)
        if function is not None:
            parts = [_compiled(value) for value in node.args]
            return lambda sizes: function(*(part(sizes) for part in parts))
    raise ValueError(f"{ast.unparse(node)!r} in a condition on sizes")


def _compared(node: ast.Compare) -> Callable[[Sizes], Any]:
    sides = [_compiled(side) for side in (node.left, *node.comparators)]
    pairs = list(zip(sides, map(_operator, node.ops), sides[1:], strict=False))
    return lambda sizes: all(apply(a(sizes), b(sizes)) for a, apply, b in pairs)


def _operator(kind: ast.AST) -> Callable[[Any, Any], Any]:
    found = _BINARY.get(type(kind))
    if found is None:
        raise ValueError(f"{type(kind).__name__} in a condition on sizes")
    return found
