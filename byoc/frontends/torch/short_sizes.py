"""Sizes that PyTorch's tracer computes, written as short as they are.

SAME padding adds ``max((ceil(h / 2) - 1) * 2 + 3 - h, 0)`` to an open size, and the next layer
reads what comes of it several times. PyTorch keeps that as it was written, so that the text of a
size grows severalfold from layer to layer, and with it the time of each question about it. As a
dimension the halved image is ``floor((h + 1)/2)`` high.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import sympy
from torch.fx.experimental.sym_node import SymNode
from torch.utils._sympy import functions

from byoc.frontends.torch.replaced import replaced
from byoc.frontends.torch.symbols import Symbols
from codegen_cc.dim import Dim

#: What makes a size longer than it has to be; sums, products and quotients of others are short.
_LONG = (
    functions.CeilToInt,
    functions.FloorToInt,
    functions.Max,
    functions.Min,
    functions.Mod,
    functions.PythonMod,
)


@contextmanager
def short_sizes() -> Iterator[None]:
    """Whole numbers that the tracer computes are written short within this context."""
    usual = SymNode.__init__

    def made(self: SymNode, expr: Any, *args: Any, **kwargs: Any) -> None:
        # Conditions on a size times a float are read from PyTorch's text of it.
        is_kept = not isinstance(expr, sympy.Expr) or expr.has(functions.TruncToInt)
        if not is_kept and expr.is_integer and expr.has(*_LONG):
            expr = _shortened(expr)
        usual(self, expr, *args, **kwargs)

    with replaced({(SymNode, "__init__"): made}):
        yield


@lru_cache(4096)
def _shortened(expr: sympy.Expr) -> sympy.Expr:
    """The same number, as it is where no shorter text is known."""
    try:
        dim = Symbols({}).dim_of(expr)
        written = _written(dim, {given.name: given for given in expr.free_symbols})
    except ValueError:
        return expr
    return written if sympy.count_ops(written) < sympy.count_ops(expr) else expr


def _written(dim: Dim, names: Mapping[str, sympy.Symbol]) -> sympy.Expr:
    """A dimension in PyTorch's functions. Raises ``ValueError`` for one that has none."""
    if isinstance(dim, int) or dim.is_Integer:
        return sympy.Integer(dim)
    if dim.is_Symbol:
        return names[dim.name]
    if isinstance(dim, sympy.floor):
        above, below = sympy.fraction(sympy.together(dim.args[0]))
        parts = (_written(sympy.expand(part), names) for part in (above, below))
        return functions.FloorDiv(*parts)
    make = _FUNCTIONS.get(dim.func)
    if make is None:
        raise ValueError(f"a dimension of {dim}")
    return make(*(_written(part, names) for part in dim.args))


_FUNCTIONS = {
    sympy.Add: sympy.Add,
    sympy.Mul: sympy.Mul,
    sympy.Pow: sympy.Pow,
    sympy.Max: functions.Max,
}
