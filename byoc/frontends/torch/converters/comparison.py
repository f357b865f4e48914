"""Comparisons that TVM computes otherwise than PyTorch, most of them of float64.

There are no kernels for float64, and TVM's code loses NaN where it takes the greater of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tvm import relax

from byoc.frontends.torch.converters.bits import reinterpreted
from byoc.frontends.torch.values import Graph
from byoc.ir.dataflow import dtype_of

op = relax.op

DOUBLE = "float64"


def unequal(a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Whether two differ, as NaN does from all.

    Of float64 TVM's code says that NaN does not, also where it makes ``a != b`` of ``not (a ==
    b)``; so equal ones are counted as a number.
    """
    if dtype_of(a) != DOUBLE:
        return op.not_equal(a, b)
    if a.same_as(b):
        return op.isnan(a)
    counted = op.astype(op.equal(a, b), "int8")
    return op.equal(counted, relax.const(0, "int8"))


def rectified(g: Graph, x: relax.Expr) -> relax.Expr:
    """``x`` above 0, else 0; NaN of NaN."""
    if g.dtype != DOUBLE:
        return op.nn.relu(x)
    x, zero = g.emit(x), g.tensor(0.0)
    return op.where(op.less(x, zero), zero, x)


def _of_two(apply: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
    def chosen(a: relax.Expr, b: relax.Expr) -> relax.Expr:
        made = apply(a, b)
        if dtype_of(a) != DOUBLE:
            return made
        return op.where(op.isnan(a), a, op.where(op.isnan(b), b, made))

    return chosen


#: The greater or the less of two; NaN where one is.
greater, less = _of_two(op.maximum), _of_two(op.minimum)


def _along(apply: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
    def chosen(x: relax.Expr, axis: int | Sequence[int], keepdims: bool = False) -> relax.Expr:
        made = apply(x, axis, keepdims)
        if dtype_of(x) != DOUBLE:
            return made
        odd = op.max(op.astype(op.isnan(x), "int32"), axis, keepdims)
        none = relax.const(float("nan"), DOUBLE)
        return op.where(op.greater(odd, relax.const(0, "int32")), none, made)

    return chosen


#: The greatest or least elements along axes; NaN where one is.
greatest, least = _along(op.max), _along(op.min)


def keys(g: Graph, x: relax.Expr, of_nan: int) -> relax.Expr:
    """Whole numbers in the order of float64, and one for NaN.

    The bits of numbers above 0 are in order; of those below, the others turned.
    """
    zero = g.tensor(0, "int64")
    x = g.emit(op.where(op.equal(x, g.tensor(0.0, DOUBLE)), g.tensor(0.0, DOUBLE), x))  # -0 is 0
    bits = g.emit(reinterpreted(g, x, "int64"))
    turned = op.bitwise_xor(bits, g.tensor(torch.iinfo(torch.int64).max, "int64"))
    made = op.where(op.less(bits, zero), g.emit(turned), bits)
    return g.emit(op.where(g.emit(op.isnan(x)), g.tensor(of_nan, "int64"), g.emit(made)))
