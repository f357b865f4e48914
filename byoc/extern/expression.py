"""Whole-number expressions over sizes and attributes: ``(h + 2 * pad - kh) // stride + 1``.

They are read with Python's own parser, cut down to ``+ - * //`` and parentheses, and written as C
and as Python.  ``//`` rounds down in both.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)


class BadExpression(ValueError):
    """A text that is no expression of this kind; the message says what in it is not."""


@dataclass(frozen=True)
class Expression:
    """A checked expression; ``text`` is as the user wrote it."""

    text: str
    tree: ast.expr = field(compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Read an expression. Raises ``BadExpression``."""
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            raise BadExpression(f"cannot read {text!r}") from None
        return cls.of(tree)

    @classmethod
    def of(cls, tree: ast.expr) -> Expression:
        """Check a parsed expression. Raises ``BadExpression``."""
        for node in ast.walk(tree):
            _check(node)
        return cls(ast.unparse(tree), tree)

    @property
    def name(self) -> str | None:
        """The name, if the expression is nothing else."""
        return self.tree.id if isinstance(self.tree, ast.Name) else None

    @property
    def number(self) -> int | None:
        """The number, if the expression is nothing else."""
        return self.tree.value if isinstance(self.tree, ast.Constant) else None

    def names(self) -> list[str]:
        """Every name in it, once."""
        found = [node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)]
        return list(dict.fromkeys(found))

    def divisors(self) -> Iterator[Expression]:
        """What it divides by."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
                yield Expression.of(node.right)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Its value. Raises ``KeyError`` and ``ZeroDivisionError``."""
        return _evaluate(self.tree, values)

    def python(self, name: Callable[[str], str]) -> str:
        """Python text; ``name`` says how each name is spelled there."""
        return ast.unparse(_renamed(self.tree, name))

    def c(self, name: Callable[[str], str]) -> str:
        """C text over int64_t, with ``ext_floor_div``; the precedence of the rest is the same."""
        return ast.unparse(_Division().visit(_renamed(self.tree, name)))


def _check(node: ast.AST) -> None:
    if isinstance(node, ast.Constant):
        if type(node.value) is not int:
            raise BadExpression(f"{node.value!r} in an expression; need whole numbers")
        if node.value >= 2**31:
            raise BadExpression(f"{node.value} in an expression; need less than 2**31")
    elif isinstance(node, ast.BinOp):
        if not isinstance(node.op, _OPERATORS):
            hint = "; write // " if isinstance(node.op, ast.Div) else "; known are + - * //"
            raise BadExpression(f"operator in {ast.unparse(node)!r}{hint.rstrip()}")
    elif isinstance(node, ast.UnaryOp):
        if not isinstance(node.op, ast.USub):
            raise BadExpression(f"operator in {ast.unparse(node)!r}; known are + - * //")
    elif isinstance(node, ast.Name):
        if not node.id.isascii():
            raise BadExpression(f"{node.id!r} in an expression; need an ASCII name")
    elif not isinstance(node, ast.operator | ast.unaryop | ast.expr_context):
        raise BadExpression(f"{ast.unparse(node)!r} is no name, number or + - * //")


def _evaluate(node: ast.expr, values: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.UnaryOp):
        return -_evaluate(node.operand, values)
    left, right = _evaluate(node.left, values), _evaluate(node.right, values)
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    return left * right if isinstance(node.op, ast.Mult) else left // right


def _renamed(tree: ast.expr, name: Callable[[str], str]) -> ast.expr:
    tree = copy.deepcopy(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = name(node.id)
    return tree


class _Division(ast.NodeTransformer):
    """``a // b`` as ``ext_floor_div(a, b)``: C's division rounds towards zero."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.FloorDiv):
            return ast.Call(ast.Name("ext_floor_div"), [node.left, node.right], [])
        return node
