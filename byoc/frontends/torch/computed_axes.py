"""Axes that were declared as computed of another size: ``32 * Dim("h")``.

No input has such a size ``h`` as an axis, and PyTorch's tracer supposes 2 or more of it, as of all
open sizes. What it supposes of the axis itself is met by less: of 32 elements, ``h`` is 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import sympy
import torch

from byoc.frontends.torch.nodes import inputs_of


def computed_axes(program: torch.export.ExportedProgram) -> dict[sympy.Symbol, list[sympy.Expr]]:
    """By each symbol that is no axis of an input itself, the axes that are computed of it alone."""
    found: defaultdict[sympy.Symbol, list[sympy.Expr]] = defaultdict(list)
    plain = set()
    for node in inputs_of(program):
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, int):
                continue
            expr = size.node.expr
            if expr.is_Symbol:
                plain.add(expr)
            elif len(expr.free_symbols) == 1:
                found[next(iter(expr.free_symbols))].append(expr)
    return {symbol: axes for symbol, axes in found.items() if symbol not in plain}


def value_of(axis: sympy.Expr, size: int) -> int | None:
    """Of what value of its symbol an axis is ``size``; None where of none."""
    factor, offset = _line(axis)
    value, rest = divmod(size - offset, factor)
    return value if rest == 0 and value >= 0 else None


def _line(axis: sympy.Expr) -> tuple[int, int]:
    """An axis as a factor of its symbol, and what is added; PyTorch has no others."""
    factor, offset = sympy.Poly(axis, *axis.free_symbols).all_coeffs()
    return int(factor), int(offset)


def supposed_least(
    symbol: sympy.Symbol, computed: Mapping[sympy.Symbol, Sequence[sympy.Expr]]
) -> int:
    """The least value of a symbol that the tracer supposes, which is 2 for an axis."""
    lines = map(_line, computed.get(symbol, [symbol]))
    return max(0, *(-(-(2 - offset) // factor) for factor, offset in lines))
