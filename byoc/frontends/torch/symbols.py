"""Sizes as PyTorch's tracer knows them, as extents of Relax.

PyTorch writes a size that is not fixed as a SymPy expression of symbols of its own (``s77``), with
functions of its own for whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import sympy
import torch
import tvm
from torch.utils._sympy import functions
from tvm import relax, tirx

from byoc.frontends.torch.rounded_sizes import rounded_size
from byoc.frontends.torch.settled_sizes import SettledSizes
from codegen_cc.dim import (
    Dim,
    above_zero,
    larger,
    normal,
    remainder,
    rounded_quotient,
    same,
    smaller,
    symbol,
)
from codegen_cc.region.relax_dims import relax_dims, relax_extent


def _quotient(above: Dim, below: Dim) -> Dim:
    """Rounded down. A divisor that a call may make 0 counts as 1 then: TVM's code would end the
    process, and PyTorch refuses such a size."""
    made = rounded_quotient(above, below)
    divisors = [sympy.fraction(sympy.together(part.args[0]))[1] for part in made.atoms(sympy.floor)]
    if any(divisor.free_symbols for divisor in divisors):
        return rounded_quotient(above, larger(below, 1))
    return made


def _remainder(above: Dim, below: Dim) -> Dim:
    return remainder(above, below if isinstance(below, int) else larger(below, 1))


#: PyTorch's functions of whole numbers, none of which is below 0 in a shape.
_FUNCTIONS = {
    functions.FloorDiv: _quotient,
    functions.CleanDiv: _quotient,
    functions.Mod: _remainder,
    functions.PythonMod: _remainder,
    sympy.Mod: _remainder,
    functions.Max: lambda *sizes: reduce(larger, sizes),
    functions.Min: lambda *sizes: reduce(smaller, sizes),
    sympy.Max: lambda *sizes: reduce(larger, sizes),
    sympy.Min: lambda *sizes: reduce(smaller, sizes),
    sympy.Add: sympy.Add,
    sympy.Mul: sympy.Mul,
    sympy.Pow: sympy.Pow,
}


#: Greatest divisor of a scale, the scale itself, and the sizes that are tried with it.
MOST_PARTS, MOST_TIMES, MOST_SCALED = 1000, 1000, 1 << 20


class Symbols:
    """The variables of a module by PyTorch's symbols; ``names`` calls some of them otherwise, and
    ``multiples`` says of which numbers some sizes are multiples: their variables count these.
    ``settled`` is what is known of sizes beforehand."""

    def __init__(
        self,
        names: Mapping[str, str],
        multiples: Mapping[str, int] | None = None,
        settled: SettledSizes | None = None,
    ) -> None:
        self._names = names
        self._multiples = multiples or {}
        self._settled = settled or SettledSizes()
        self._variables: dict[sympy.Symbol, tirx.Var] = {}
        #: Numbers that a program gives as sizes which the tracer writes otherwise, and counts.
        self._equal: dict[sympy.Basic, Dim] = {}
        #: What sizes are called that data decided, by PyTorch's names.
        self._found: dict[str, Dim] = {}
        #: Numbers that are read from tensors and can be no sizes, as tensors without axes.
        self.elements: dict[sympy.Basic, relax.Expr] = {}

    def known(self) -> list[sympy.Symbol]:
        """The symbols that have variables."""
        return list(self._variables)

    def variables(self) -> dict[sympy.Symbol, tirx.Var]:
        """The variables of symbols."""
        return dict(self._variables)

    def within(self, variables: Mapping[sympy.Symbol, tirx.Var]) -> Symbols:
        """The same symbols in a function that has variables of its own for them."""
        inner = Symbols(self._names, self._multiples, self._settled)
        inner._variables = dict(variables)
        inner._equal, inner._found = dict(self._equal), dict(self._found)
        return inner

    def extent(self, size: Any) -> int | tirx.PrimExpr:
        """A size of PyTorch's as an extent. Raises ``ValueError`` for one that data decide."""
        if isinstance(size, int):
            return size
        return relax_extent(self.dim(size), self._variables)

    def extent_of(self, expr: sympy.Basic) -> int | tirx.PrimExpr:
        """The same of a whole number that PyTorch computes from its symbols."""
        return relax_extent(self.dim_of(expr), self._variables)

    def dim(self, size: Any) -> Dim:
        """A size of PyTorch's as a dimension. Raises ``ValueError`` for one that data decide."""
        return size if isinstance(size, int) else self.dim_of(size.node.expr)

    def equate(self, size: Any, number: int) -> None:
        """Note that a size is this number, as a reshape to it says."""
        if not isinstance(size, int) and not size.node.expr.is_Symbol:
            self._equal[size.node.expr] = number

    def written(self, dim: Dim) -> int | tirx.PrimExpr:
        """A dimension as an extent."""
        return relax_extent(self._settled.of(dim), self._variables)

    def at_least_none(self, extent: int | tirx.PrimExpr) -> int | tirx.PrimExpr:
        """A number of Relax's, or 0 where it is below: the same for one that never is."""
        (dim,) = relax_dims([extent])
        least = self._settled.of(above_zero(dim))
        return extent if same(least, dim) else self.written(least)

    def name(self, size: Any) -> str:
        """What the symbol is called that is all of a size."""
        return str(self.dim(size))

    def found(self, size: Any, count: int | None = None, least: int = 0) -> int | tirx.PrimExpr:
        """The count of a size that the data of a tensor decide, whose symbol the operator at work
        gives a value: how much it is above ``least``.

        ``count`` is what the size is, of data that are known. Raises ``ValueError`` for a size that
        is computed from such.
        """
        expr = size if isinstance(size, int) else size.node.expr
        if isinstance(expr, sympy.Symbol) and decided_by_data(expr):
            name = symbol(f"count{len(self._found)}")
            self._found.setdefault(expr.name, name + least if count is None else count)
        extent = self.extent(size)
        return extent if least == 0 else tvm.sym.Analyzer().simplify(extent - least)

    def counted(self, expr: sympy.Basic) -> tirx.PrimExpr:
        """The count of a size that is computed from elements, whose value the caller gives."""
        count = symbol(f"count{len(self._found)}")
        self._found[str(expr)] = self._equal[expr] = count
        self._variables[count] = tirx.Var(count.name, "int64")
        return self._variables[count]

    def is_uncounted(self, size: Any) -> bool:
        """Whether data decide a size to which no operator has given a value."""
        expr = None if isinstance(size, int) else size.node.expr
        is_own = isinstance(expr, sympy.Symbol) and decided_by_data(expr)
        return is_own and expr.name not in self._found

    def dim_of(self, expr: sympy.Basic) -> Dim:
        """The same of a whole number that PyTorch computes from its symbols."""
        return self._settled.of(normal(self._dim(expr)))

    def _dim(self, expr: sympy.Basic) -> Dim:
        if isinstance(expr, sympy.Integer):
            return int(expr)
        if expr in self._equal:
            return self._equal[expr]
        if isinstance(expr, sympy.Symbol):
            return self._symbol(expr)
        if expr.func is functions.TruncToInt and (scaled := self._scaled(expr.args[0])) is not None:
            return scaled
        if (rounded := rounded_size(expr, self._dim)) is not None:
            return rounded
        make = _FUNCTIONS.get(expr.func)
        if make is None:
            raise ValueError(f"a size of {expr}; need sums, products, quotients, minima or maxima")
        return make(*map(self._dim, expr.args))

    def _scaled(self, expr: sympy.Basic) -> Dim | None:
        """A size times a float, rounded down, as enlarged images have; None for what is neither."""
        floats = [part for part in expr.args if isinstance(part, sympy.Float)]
        others = [part for part in expr.args if isinstance(part, functions.ToFloat)]
        if expr.func is not sympy.Mul or len(expr.args) != 2 or not floats or not others:
            return None
        scale = float(floats[0])
        if not 0 < scale < MOST_TIMES:
            raise ValueError(f"sizes times {scale}; need a scale from 0 to {MOST_TIMES}")
        share, _ = share_of(scale)
        return sympy.floor(self._dim(others[0].args[0]) * sympy.Rational(*share.as_integer_ratio()))

    def _symbol(self, given: sympy.Symbol) -> Dim:
        name = given.name
        found = self._found.get(name)
        if found is None and decided_by_data(given):
            raise ValueError("a size that the data of a tensor decide; need one that shapes tell")
        if found is None:
            found = symbol(self._names.get(name, name))
        for own in () if isinstance(found, int) else found.free_symbols:
            if own not in self._variables:
                self._variables[own] = tirx.Var(own.name, "int64")
        return self._multiples.get(name, 1) * found


@lru_cache(256)
def share_of(scale: float) -> tuple[Fraction, bool]:
    """A fraction of small numbers for a float, and whether as many elements of each size, up to
    ``MOST_SCALED``, are what PyTorch's product is when rounded down."""
    share = Fraction(scale).limit_denominator(MOST_PARTS)
    sizes = np.arange(MOST_SCALED)
    made = np.floor(sizes * scale).astype(np.int64)
    return share, np.array_equal(made, sizes * share.numerator // share.denominator)


def decided_by_data(given: sympy.Symbol) -> bool:
    """Whether a symbol of PyTorch's is no size of an input."""
    name = given.name
    return name.startswith(("u", "zuf", "zf")) and name.lstrip("uzf").isdigit()


def is_size(value: object) -> bool:
    """Whether a value of the traced program is a size, or something computed from sizes."""
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)
