"""Sizes as numbers, and as tensors without axes."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np
import sympy
import torch
from torch.utils._sympy import functions
from tvm import relax, tirx

from byoc.frontends.named_builder import NamedBuilder
from byoc.frontends.torch.symbols import Symbols
from byoc.ir.dataflow import constant, dtype_of
from codegen_cc.dim import at_most
from codegen_cc.region.relax_dims import relax_dims

op = relax.op


def size_tensor(builder: NamedBuilder, extent: Any, dtype: str) -> relax.Expr:
    """An extent, or a difference of extents, as a tensor without axes."""
    size = getattr(extent, "value", extent)
    if isinstance(size, int):
        return constant(np.array(size), dtype)
    (dim,) = relax_dims([extent])
    is_count = at_most(0, dim)
    less = -int(sympy.sympify(dim).as_coeff_Add()[0])
    if not is_count and at_most(0, dim + less):
        more = _counted(builder, extent + less)
        made = builder.emit(op.subtract(more, constant(np.array(less), "int64")))
        return made if dtype == "int64" else builder.emit(op.astype(made, dtype))
    made = _counted(builder, extent if is_count else tirx.max(extent, 0))
    if not is_count:
        made = builder.emit(op.subtract(made, _counted(builder, tirx.max(0 - extent, 0))))
    return made if dtype == "int64" else builder.emit(op.astype(made, dtype))


def _counted(builder: NamedBuilder, extent: Any) -> relax.Expr:
    counted = builder.emit(op.arange(0, extent + 1, 1, "int64"))  # from 0, as the kernel does
    last = op.strided_slice(counted, [0], [extent], [extent + 1], [1], assume_inbound=True)
    return builder.emit(op.reshape(builder.emit(last), []))


def float_tensor(
    builder: NamedBuilder, symbols: Symbols, number: torch.SymFloat, dtype: str
) -> relax.Expr:
    """A float that is computed from sizes, and from elements of tensors."""

    def made(expr: sympy.Basic) -> relax.Expr:
        if expr.is_number:
            return constant(np.array(float(expr)), dtype)
        if expr in symbols.elements:
            return builder.emit(op.astype(symbols.elements[expr], dtype))
        if expr.is_integer:
            return size_tensor(builder, symbols.extent_of(expr), dtype)
        apply = _FLOATS.get(expr.func)
        if apply is None:
            raise ValueError(f"a number of {expr}, computed from sizes or elements")
        first, *others = map(made, expr.args)
        if not others:
            return builder.emit(apply(first))
        return reduce(lambda a, b: builder.emit(apply(a, b)), others, first)

    return made(number.node.expr)


def element_tensor(
    builder: NamedBuilder, symbols: Symbols, size: torch.SymInt
) -> relax.Expr | None:
    """A whole number that is computed from elements of tensors, as a tensor without axes; None for
    one that shapes tell."""
    if size.node.expr in symbols.elements:
        return symbols.elements[size.node.expr]
    if not size.node.expr.free_symbols & symbols.elements.keys():
        return None

    def made(expr: sympy.Basic) -> relax.Expr:
        if expr in symbols.elements:
            return builder.emit(op.astype(symbols.elements[expr], "int64"))
        if not expr.free_symbols & symbols.elements.keys():
            return size_tensor(builder, symbols.extent_of(expr), "int64")
        if expr.func is functions.TruncToInt and expr.args[0] in symbols.elements:
            return made(expr.args[0])
        apply = _WHOLE.get(expr.func)
        if apply is None:
            raise ValueError(f"a number of {expr}, computed from elements; need sums and products")
        return reduce(lambda a, b: builder.emit(apply(a, b)), map(made, expr.args))

    return made(size.node.expr)


def truth_tensor(builder: NamedBuilder, symbols: Symbols, truth: torch.SymBool) -> relax.Expr:
    """Whether one size is to another as ``truth`` says."""
    expr = truth.node.expr
    compare = _TRUTHS.get(expr.func)
    if compare is None:
        raise ValueError(f"a truth that sizes decide ({truth})")
    sides = [size_tensor(builder, symbols.extent_of(side), "int64") for side in expr.args]
    return builder.emit(compare(*sides))


#: Comparisons of sizes.
_TRUTHS = {
    sympy.StrictGreaterThan: op.greater,
    sympy.StrictLessThan: op.less,
    sympy.GreaterThan: op.greater_equal,
    sympy.LessThan: op.less_equal,
    sympy.Equality: op.equal,
    sympy.Unequality: op.not_equal,
}

#: PyTorch's functions of whole numbers that are read from tensors.
_WHOLE = {
    sympy.Add: op.add,
    sympy.Mul: op.multiply,
    **dict.fromkeys((sympy.Max, functions.Max), op.maximum),
    **dict.fromkeys((sympy.Min, functions.Min), op.minimum),
}

_LOG_2 = np.array(math.log(2))

#: Those that Relax has by the same names.
_CURVES = (
    *("sqrt", "exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh"),
    *("asin", "acos", "atan", "asinh"),
)

#: PyTorch's functions of numbers that are no whole ones.
_FLOATS = {
    functions.ToFloat: lambda x: x,
    functions.FloatTrueDiv: op.divide,
    functions.IntTrueDiv: op.divide,
    functions.FloatPow: op.power,
    **{getattr(functions, f"OpaqueUnaryFn_{name}"): getattr(op, name) for name in _CURVES},
    functions.OpaqueUnaryFn_log2: lambda x: op.divide(op.log(x), constant(_LOG_2, dtype_of(x))),
    sympy.Abs: op.abs,
    sympy.Add: op.add,
    sympy.Mul: op.multiply,
    **dict.fromkeys((sympy.Max, functions.Max), op.maximum),
    **dict.fromkeys((sympy.Min, functions.Min), op.minimum),
}
