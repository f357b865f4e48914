"""Symbols of shapes: which ones a type tells, and which ones a function knows."""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from codegen_cc.region.relax_dims import relax_dims


def extents_of(ty: tvm.ir.Type) -> list[tvm.ir.Expr]:
    """The extents of a tensor or a shape; none where they are not known."""
    values = ty.values if isinstance(ty, relax.ShapeType) else None
    if isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr):
        values = ty.shape.values
    return list(values or ())


def told_by(ty: tvm.ir.Type) -> list[tirx.Var]:
    """The symbols that a value of this type tells: those that are an axis, not part of one."""
    return [extent for extent in extents_of(ty) if isinstance(extent, tirx.Var)]


def named_in(*types: tvm.ir.Type) -> list[tirx.Var]:
    """All symbols in types, each once, in the order of their names."""
    found = {s for ty in types for s in relax.analysis.tir_vars_in_type(ty)}
    return sorted(found, key=lambda symbol: symbol.name)


def defined_symbols(func: relax.Function) -> frozenset[str]:
    """Names of the symbols that a function's parameters and casts define, each by one variable.

    They are those of ``relax_dims``. Kernels know symbols by name, so that a name which two
    variables have says nothing.
    """
    types = [parameter.ty for parameter in func.params]
    for block in func.body.blocks:
        types += [b.ty for b in block.bindings if isinstance(b, relax.MatchCast)]
    variables = {symbol for ty in types for symbol in told_by(ty)}
    names = [str(dim) for dim in relax_dims(variables)]
    return frozenset(name for name in names if names.count(name) == 1)
