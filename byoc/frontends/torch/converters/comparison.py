"""Comparisons that TVM computes otherwise than PyTorch."""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import dtype_of

op = relax.op


def unequal(a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Whether two differ, as NaN does from all.

    Of float64, which has no kernels, TVM's code says that NaN does not, also where it makes
    ``a != b`` of ``not (a == b)``; so equal ones are counted as a number.
    """
    if dtype_of(a) != "float64":
        return op.not_equal(a, b)
    if a.same_as(b):
        return op.isnan(a)
    counted = op.astype(op.equal(a, b), "int8")
    return op.equal(counted, relax.const(0, "int8"))
