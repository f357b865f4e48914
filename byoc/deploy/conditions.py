"""Conditions on the sizes of axes that a model was made for, such as ``n % 4 == 0``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from byoc.deploy.condition_text import ConditionText
from byoc.deploy.metadata import SymbolRange
from byoc.errors import LoadError

Sizes = Mapping[str, int]

Value = Callable[[Sizes], Any]

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **{"Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Pow": operator.pow},
    **{"Div": operator.truediv, "FloorDiv": operator.floordiv, "Mod": operator.mod},
    **{"Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le},
    **{"Gt": operator.gt, "GtE": operator.ge},
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
    _value: Value

    def holds(self, sizes: Sizes) -> bool:
        """Whether sizes meet it. Where they do not tell, as of quotients by 0, they do."""
        return self.tells(sizes) is not False

    def tells(self, sizes: Sizes) -> bool | None:
        """Whether sizes meet it; None where they do not tell."""
        try:
            return bool(self._value(sizes))
        except (KeyError, ZeroDivisionError):
            return None


class _Compiled(ConditionText[Value]):
    """Functions of sizes; notes the ``names`` that it meets."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def number(self, value: bool | int | float) -> Value:
        return lambda sizes: value

    def symbol(self, name: str) -> Value:
        self.names.add(name)
        return lambda sizes: sizes[name]

    def arithmetic(self, kind: str, left: Value, right: Value) -> Value:
        if (apply := _OPERATORS.get(kind)) is None:
            raise self.unfit(kind)
        return lambda sizes: apply(left(sizes), right(sizes))

    comparison = arithmetic

    def minus(self, given: Value) -> Value:
        return lambda sizes: -given(sizes)

    def negation(self, given: Value) -> Value:
        return lambda sizes: not given(sizes)

    def all_of(self, parts: Sequence[Value]) -> Value:
        return lambda sizes: all(part(sizes) for part in parts)

    def any_of(self, parts: Sequence[Value]) -> Value:
        return lambda sizes: any(part(sizes) for part in parts)

    def function(self, name: str, given: Sequence[Value]) -> Value:
        if (apply := _FUNCTIONS.get(name)) is None:
            raise self.unfit(name)
        return lambda sizes: apply(*(part(sizes) for part in given))


@lru_cache(1024)
def condition(text: str) -> Condition:
    """Read a condition. Raises ``ValueError`` for what is none."""
    compiled = _Compiled()
    value = compiled.read(text)
    return Condition(text, frozenset(compiled.names), value)


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
