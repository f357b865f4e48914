"""Read and write the dimensions of Relax shapes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial, reduce
from keyword import iskeyword
from operator import add, mul

import sympy
import tvm
from tvm import relax, tirx

from codegen_cc.dim import (
    FUNCTIONS,
    Dim,
    larger,
    normal,
    remainder,
    rounded_quotient,
    smaller,
    symbol,
)


def relax_dims(shape: Iterable[tvm.ir.Expr]) -> tuple[Dim, ...]:
    """The dimensions of a Relax shape.

    Raises ``ValueError`` where one is not made of integers and variables by addition,
    subtraction, multiplication, floor division, remainder, minimum and maximum.
    """
    return tuple(normal(_dim(extent)) for extent in shape)


@lru_cache(maxsize=1 << 14)  # passes ask for the same shapes again and again
def known_dims(shape: relax.ShapeExpr) -> tuple[Dim, ...] | None:
    """The same; None where a dimension is made otherwise."""
    try:
        return relax_dims(shape.values)
    except ValueError:
        return None


def dim_text(extent: tvm.ir.Expr) -> str:
    """A dimension of a Relax shape for people: ``32*h``; TVM's own text where it is no ``Dim``."""
    try:
        return str(*relax_dims([extent]))
    except ValueError:
        return str(extent)


def relax_extent(dim: Dim, variables: Mapping[sympy.Symbol, tvm.ir.Var]) -> int | tvm.ir.Expr:
    """A dimension as Relax has it, with these variables for its symbols.

    Factors of a product stand in the order of ``variables``: TVM knows that h * w is h * w, and not
    that it is w * h. Axes in their order are what its own operators multiply. Extremes stand as its
    own operators simplify them, min(n, 3) for n - Max(0, n - 3): it knows that the two are equal
    from one side only.

    Raises ``ValueError`` where ``relax_dims`` could not read it back, ``KeyError`` for a symbol
    without a variable.
    """
    extent = _written(dim, variables)
    if isinstance(dim, sympy.Expr) and dim.has(sympy.Max):
        return tvm.sym.Analyzer().simplify(extent)
    return extent


def _written(dim: Dim, variables: Mapping[sympy.Symbol, tvm.ir.Var]) -> int | tvm.ir.Expr:
    if isinstance(dim, int | sympy.Integer):
        return int(dim)
    if isinstance(dim, sympy.Symbol):
        return variables[dim]
    if isinstance(dim, sympy.Add | sympy.Mul):
        order = list(variables)
        parts = [_written(a, variables) for a in sorted(dim.args, key=partial(_place, order))]
        return reduce(add if isinstance(dim, sympy.Add) else mul, parts)
    if isinstance(dim, sympy.Pow) and dim.exp.is_Integer and dim.exp > 0:
        return reduce(mul, [_written(dim.base, variables)] * int(dim.exp))
    if isinstance(dim, sympy.floor):
        above, below = (sympy.expand(e) for e in sympy.fraction(sympy.together(dim.args[0])))
        return tirx.floordiv(_written(above, variables), _written(below, variables))
    if isinstance(dim, sympy.Mod):
        return tirx.floormod(*(_written(argument, variables) for argument in dim.args))
    if isinstance(dim, sympy.Max):
        parts = [_written(argument, variables) for argument in dim.args]
        return reduce(
            tirx.max, (tirx.IntImm("int64", p) if isinstance(p, int) else p for p in parts)
        )
    raise ValueError(f"dimension {dim} is not a sum, product or quotient of variables")


def _place(order: list[sympy.Symbol], factor: sympy.Expr) -> int:
    """Where the first symbol of an expression stands in an order; numbers stand last."""
    return min((order.index(s) for s in factor.free_symbols), default=len(order))


def variable_symbols(variables: Iterable[tvm.ir.Var]) -> dict[sympy.Symbol, tvm.ir.Var]:
    """The variables of shapes by the symbols that ``relax_dims`` reads them as."""
    return {_symbol_of(variable.name): variable for variable in variables}


def _symbol_of(name: str) -> Dim:
    clean = re.sub(r"\W", "_", name, flags=re.ASCII)
    # Names that differ in such characters only stay apart; the importer leaves some without a name.
    # Expressions are written as texts in which some names mean something else.
    if clean != name or not clean or clean[0].isdigit() or clean in FUNCTIONS or iskeyword(clean):
        clean = f"_{clean}_{zlib.crc32(name.encode()):08x}"
    return symbol(clean)


def _dim(expr: object) -> Dim:
    if isinstance(expr, int):
        return expr
    if isinstance(expr, tirx.IntImm):
        return int(expr)
    if isinstance(expr, tirx.Var):
        return _symbol_of(expr.name)
    if isinstance(expr, tirx.Cast):
        return _dim(expr.value)
    binary = {
        tirx.Add: lambda a, b: a + b,
        tirx.Sub: lambda a, b: a - b,
        tirx.Mul: lambda a, b: a * b,
        tirx.FloorDiv: rounded_quotient,
        tirx.FloorMod: remainder,
        tirx.Min: smaller,
        tirx.Max: larger,
    }.get(type(expr))
    if binary is None:
        raise ValueError(f"dimension {expr} is not a sum, product or quotient of variables")
    return binary(_dim(expr.a), _dim(expr.b))
