"""Read the loop nests that TVM's importer emits in place of operators.

Names of such functions prove nothing, so what they store is read: one assignment per element of
the result, inside loops over its axes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import tirx


@dataclass(frozen=True)
class Store:
    """``result[axes] = value`` for all positions; extents of the axes, and the parameters."""

    axes: tuple[tirx.Var, ...]
    extents: tuple[int, ...]
    value: tirx.Expr
    params: tuple[tirx.Var, ...]


def read_store(func: tirx.PrimFunc) -> Store | None:
    """Read a function that stores each element of its last parameter once; None for others."""
    params = tuple(func.params)
    stmt = getattr(getattr(func.body, "block", None), "body", None)
    loops: list[tuple[tirx.Var, int]] = []
    while isinstance(stmt, tirx.For):
        if not isinstance(stmt.extent, tirx.IntImm) or int(stmt.min) != 0:
            return None
        loops.append((stmt.loop_var, int(stmt.extent)))
        stmt = stmt.body
    if not hasattr(stmt, "block"):
        return None
    inner = stmt.block
    store, axes = inner.body, tuple(axis.var for axis in inner.iter_vars)
    spatial = (
        len(axes) == len(loops)
        and all(v.same_as(var) for v, (var, _) in zip(stmt.iter_values, loops, strict=True))
        and inner.init is None
        and isinstance(store, tirx.BufferStore)
        and store.buffer.same_as(params[-1])
        and is_at(store.indices, axes)
    )
    if not spatial:
        return None
    return Store(axes, tuple(extent for _, extent in loops), store.value, params)


def is_at(indices: list[tirx.Expr], axes: tuple[tirx.Var, ...]) -> bool:
    """Whether indices are these variables, one by one."""
    return len(indices) == len(axes) and all(
        index.same_as(axis) for index, axis in zip(indices, axes, strict=True)
    )


def source_of(expr: tirx.Expr) -> tirx.Var | None:
    """The buffer that an expression loads an element of; None if it is no load."""
    return getattr(expr, "source", None)


_BINARY = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.EQ: np.equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
}


def conditional(expr: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr] | None:
    """Condition and both values of ``if_then_else``; None for other expressions."""
    if isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "").endswith(".if_then_else"):
        condition, first, second = expr.args
        return condition, first, second
    return None


def variables_of(expr: tirx.Expr) -> list[tirx.Var] | None:
    """Variables of integer arithmetic that ``evaluate`` knows; None if there is anything else."""
    if isinstance(expr, tirx.Var):
        return [expr]
    if isinstance(expr, tirx.IntImm):
        return []
    branches = conditional(expr)
    if branches is None and type(expr) in _BINARY:
        branches = (expr.a, expr.b)
    if branches is None:
        return None
    found: list[tirx.Var] = []
    for part in branches:
        inner = variables_of(part)
        if inner is None:
            return None
        found += [var for var in inner if not any(var.same_as(other) for other in found)]
    return found


def evaluate(expr: tirx.Expr, values: np.ndarray) -> np.ndarray:
    """An expression of one variable for each of its values; see ``variables_of``."""
    if isinstance(expr, tirx.Var):
        return values
    if isinstance(expr, tirx.IntImm):
        return np.full(values.shape, int(expr))
    branches = conditional(expr)
    if branches is not None:
        return np.where(*(evaluate(part, values) for part in branches))
    return _BINARY[type(expr)](evaluate(expr.a, values), evaluate(expr.b, values))
