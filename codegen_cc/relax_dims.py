"""Read the dimensions of Relax shapes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

import sympy
import tvm
from tvm import tirx

from codegen_cc.dim import Dim, normal, symbol


def relax_dims(shape: Iterable[tvm.ir.Expr]) -> tuple[Dim, ...]:
    """The dimensions of a Relax shape.

    Raises ``ValueError`` where one is not made of integers and variables by addition,
    subtraction, multiplication, floor division and remainder.
    """
    return tuple(normal(_dim(extent)) for extent in shape)


def _symbol_of(name: str) -> Dim:
    clean = re.sub(r"\W", "_", name, flags=re.ASCII)
    # Names that differ in such characters only stay apart; the importer leaves some without a name.
    if clean != name or not clean or clean[0].isdigit():
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
        tirx.FloorDiv: lambda a, b: sympy.floor(sympy.Rational(1, 1) * a / b),
        tirx.FloorMod: lambda a, b: sympy.Mod(a, b),
    }.get(type(expr))
    if binary is None:
        raise ValueError(f"dimension {expr} is not a sum, product or quotient of variables")
    return binary(_dim(expr.a), _dim(expr.b))
