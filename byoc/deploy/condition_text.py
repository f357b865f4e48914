"""Conditions on sizes as text, such as ``n % 4 == 0``, read into whatever stands for a number."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Kinds of operators by their names in ``ast``: Add, Sub, Mult, Div, FloorDiv, Mod, Pow; Eq, NotEq,
#: Lt, LtE, Gt, GtE.
Kind = str


class ConditionText(ABC, Generic[T]):
    """Reads Python's arithmetic, comparisons and logic; a subclass says what its pieces are.

    What it does not say is no condition: ``ValueError``, which names the piece.
    """

    def read(self, text: str) -> T:
        """A condition. Raises ``ValueError`` for what is none."""
        return self.of(parsed(text))

    def of(self, node: ast.AST) -> T:
        """A piece of one."""
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            return self.number(node.value)
        if isinstance(node, ast.Name):
            return self.symbol(node.id)
        if isinstance(node, ast.BinOp):
            return self.arithmetic(type(node.op).__name__, self.of(node.left), self.of(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            given = self.of(node.operand)
            return self.negation(given) if isinstance(node.op, ast.Not) else self.minus(given)
        if isinstance(node, ast.BoolOp):
            parts = [self.of(value) for value in node.values]
            return self.all_of(parts) if isinstance(node.op, ast.And) else self.any_of(parts)
        if isinstance(node, ast.Compare):
            sides = [self.of(side) for side in (node.left, *node.comparators)]
            kinds = [type(op).__name__ for op in node.ops]
            pairs = zip(sides, kinds, sides[1:], strict=False)
            return self.all_of([self.comparison(kind, a, b) for a, kind, b in pairs])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self.function(node.func.id, [self.of(argument) for argument in node.args])
        raise self.unfit(ast.unparse(node))

    @abstractmethod
    def number(self, value: bool | int | float) -> T:
        """A number or a truth."""

    @abstractmethod
    def symbol(self, name: str) -> T:
        """A size."""

    @abstractmethod
    def arithmetic(self, kind: Kind, left: T, right: T) -> T:
        """A sum, a difference, a product, a quotient, a remainder or a power."""

    @abstractmethod
    def minus(self, given: T) -> T:
        """A number with the other sign."""

    @abstractmethod
    def function(self, name: str, given: Sequence[T]) -> T:
        """max, min, abs, float, sqrt, trunc, floor, ceil or round."""

    def comparison(self, kind: Kind, left: T, right: T) -> T:
        """Whether two numbers compare."""
        raise self.unfit(kind)

    def negation(self, given: T) -> T:
        """The other truth."""
        raise self.unfit("not")

    def all_of(self, parts: Sequence[T]) -> T:
        """Whether all are true."""
        raise self.unfit("and")

    def any_of(self, parts: Sequence[T]) -> T:
        """Whether any is true."""
        raise self.unfit("or")

    @staticmethod
    def unfit(piece: Any) -> ValueError:
        """The error for a piece that stands for nothing here."""
        return ValueError(f"{str(piece)!r} in a condition on sizes")


def parsed(text: str) -> ast.expr:
    """The tree of a condition. Raises ``ValueError`` for what is no expression."""
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no condition") from error
