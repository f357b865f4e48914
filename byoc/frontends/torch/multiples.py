"""Axes whose sizes must be whole multiples of a number, by the conditions of a program.

An image that is halved and doubled, and then joined with what it was, must have an even size. Where
the library counts in halves of that size, both are as large without a look at the call.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping

import sympy
import torch
from torch.utils._sympy import functions

from byoc.deploy.conditions import Condition, condition

#: Sizes that are tried with the conditions of an axis, how many of them must meet these, and what
#: is tried for a second axis beside it.
TRIED, ENOUGH, BESIDE = range(1, 513), 4, range(1, 65)


def multiples_of(
    program: torch.export.ExportedProgram, conditions: Iterable[str], names: Mapping[str, str]
) -> dict[str, int]:
    """The greatest number that divides all sizes of an axis, by PyTorch's symbol of it.

    Only of axes of which the program has quotients, for others it makes no difference. It is found
    by trying: what the conditions allow beyond is still refused by them.
    """
    known = [condition(text) for text in conditions]
    found = {}
    for symbol in _divided(program):
        name = names.get(symbol.name, symbol.name)
        own = [needed for needed in known if name in needed.names and len(needed.names) <= 2]
        if not own:
            continue
        sizes = [size for size in TRIED if all(_can_hold(needed, name, size) for needed in own)]
        factor = math.gcd(*sizes)
        if factor > 1 and len(sizes) >= ENOUGH:
            found[symbol.name] = factor
    return found


def _can_hold(needed: Condition, name: str, size: int) -> bool:
    """Whether a condition holds for a size of one axis, and some of the other; one of a quotient
    by 0 does not."""
    others = needed.names - {name}
    if not others:
        return needed.tells({name: size}) is True
    (other,) = others
    return any(needed.tells({name: size, other: beside}) for beside in BESIDE)


def _divided(program: torch.export.ExportedProgram) -> list[sympy.Symbol]:
    """The symbols of inputs that stand in a quotient or a remainder of some size."""
    found: set[sympy.Symbol] = set()
    for node in program.graph.nodes:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else [value]:
            if isinstance(size, torch.SymInt):
                for part in size.node.expr.atoms(functions.FloorDiv, functions.Mod):
                    found |= part.free_symbols
    return sorted(found & set(program.range_constraints), key=str)


def in_multiples(text: str, factors: Mapping[str, int]) -> str:
    """A condition on sizes as one on what they are multiples of: ``2 * n`` for ``n``."""
    return _written(text, {name: f"{factor} * {name}" for name, factor in factors.items()})


def renamed(text: str, names: Mapping[str, str]) -> str:
    """A condition on sizes that have other names."""
    return _written(text, names) if names else text


def _written(text: str, others: Mapping[str, str]) -> str:
    return ast.unparse(ast.fix_missing_locations(_Others(others).visit(ast.parse(text)))).strip()


class _Others(ast.NodeTransformer):
    def __init__(self, others: Mapping[str, str]) -> None:
        self._others = others

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """What stands for a name."""
        other = self._others.get(node.id)
        return node if other is None else ast.parse(other, mode="eval").body
