"""Turn the importer's Pad, Tile and Flip back into operators.

They are imported as ``call_tir`` of a loop nest that copies elements,

    y[i, j, ...] = x[f(i), g(j), ...]      or a fill value where a condition on i, j, ... fails

The functions f, g, ... and the conditions are evaluated for every index, and the tables that come
out are compared with those of ``nn.pad`` and ``tile``; any others become ``take`` with constant
indices, axis by axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax, tirx

from byoc.canonicalise.take_of_constants import take_of
from byoc.ir.dataflow import Block, dtype_of, is_kernel_float, static_shape_of
from byoc.ir.loop_nest import (
    Store,
    conditional,
    evaluate,
    read_store,
    source_of,
    variables_of,
)

#: Stands in a table where the result has the fill value.
FILL = -1


@dataclass(frozen=True)
class Copy:
    """For each axis of the operand: the result's axis that it follows, and where it reads."""

    axes: tuple[int, ...]
    tables: tuple[np.ndarray, ...]
    fill: float


def movement_from_call_tir(block: Block) -> None:
    """Rewrite loop nests that copy elements of one tensor of static shape."""
    for var, call in block.calls("relax.call_tir"):
        func = block.mod[call.args[0]] if isinstance(call.args[0], tvm.ir.GlobalVar) else None
        operands = list(call.args[1].fields) if isinstance(call.args[1], relax.Tuple) else []
        if not isinstance(func, tirx.PrimFunc) or len(operands) != 1 or len(call.args) != 2:
            continue
        (source,) = operands
        known = static_shape_of(source) is not None and static_shape_of(var) is not None
        copy = read_copy(func, static_shape_of(source)) if known else None
        if copy is None or dtype_of(source) != dtype_of(var):
            continue
        result = _operator(block, var, source, copy)
        if result is not None:
            block.replace(var, result)


def read_copy(func: tirx.PrimFunc, shape: tuple[int, ...]) -> Copy | None:
    """The tables of a loop nest that copies a tensor of this shape; None if it does not."""
    store = read_store(func)
    if store is None or len(store.params) != 2:
        return None
    value, fill, conditions = store.value, 0.0, []
    branches = conditional(value)
    if branches is not None and isinstance(branches[2], tirx.FloatImm | tirx.IntImm):
        value, fill = branches[1], float(branches[2].value)
        conditions = _conjuncts(branches[0])
    source = source_of(value)
    if source is None or not source.same_as(store.params[0]) or len(value.indices) != len(shape):
        return None
    axes: list[int] = []
    tables: list[np.ndarray] = []
    skipped = len(store.axes) - len(shape)
    for place, (index, extent) in enumerate(zip(value.indices, shape, strict=True)):
        axis = _axis_of(store, index, place + skipped)
        if axis is None or axis in axes:
            return None
        axes.append(axis)
        tables.append(evaluate(index, np.arange(store.extents[axis])))
        if not conditions and not _inside(tables[-1], extent):
            return None
    for condition in conditions:
        axis = _axis_of(store, condition, None)
        if axis is None or axis not in axes:
            return None
        kept = evaluate(condition, np.arange(store.extents[axis])).astype(bool)
        place = axes.index(axis)
        tables[place] = np.where(kept, tables[place], FILL)
    if not all(_inside(t[t != FILL], n) for t, n in zip(tables, shape, strict=True)):
        return None
    return Copy(tuple(axes), tuple(tables), fill)


def _inside(table: np.ndarray, extent: int) -> bool:
    return table.size == 0 or bool(0 <= table.min() <= table.max() < extent)


def _conjuncts(expr: tirx.Expr) -> list[tirx.Expr]:
    if isinstance(expr, tirx.And):
        return [*_conjuncts(expr.a), *_conjuncts(expr.b)]
    return [expr]


def _axis_of(store: Store, expr: tirx.Expr, otherwise: int | None) -> int | None:
    """The result's axis that an expression is of; ``otherwise`` if it is of none."""
    found = variables_of(expr)
    if found is None or len(found) > 1:
        return None
    if not found:
        return otherwise if otherwise is None or otherwise >= 0 else None
    return next((axis for axis, var in enumerate(store.axes) if var.same_as(found[0])), None)


def _operator(block: Block, var: relax.Var, source: relax.Expr, copy: Copy) -> relax.Expr | None:
    shape, result = static_shape_of(source), static_shape_of(var)
    same_rank = copy.axes == tuple(range(len(result)))
    if same_rank:
        padded = _pad(source, copy, shape, ("constant", "reflect", "replicate"))
        if padded is not None and is_kernel_float(var, stored=True):
            return padded
    if any((table == FILL).any() for table in copy.tables) or 0 in shape:
        return None
    trailing = tuple(range(len(result) - len(shape), len(result)))
    if copy.axes == trailing and all(
        (table == np.arange(len(table)) % n).all() and len(table) % n == 0
        for table, n in zip(copy.tables, shape, strict=True)
    ):
        counts = [len(table) // n for table, n in zip(copy.tables, shape, strict=True)]
        return relax.op.tile(source, [*result[: trailing[0] if trailing else None], *counts])
    if not same_rank:
        return None
    wrapped = _pad(source, copy, shape, ("circular",))
    if wrapped is not None and is_kernel_float(var, stored=True):
        return wrapped
    moved = [a for a, t in enumerate(copy.tables) if not np.array_equal(t, np.arange(shape[a]))]
    for axis in moved[:-1]:
        source = block.emit(var, take_of(source, copy.tables[axis], axis))
    return take_of(source, copy.tables[moved[-1]], moved[-1]) if moved else source


def _pad(
    source: relax.Expr, copy: Copy, shape: tuple[int, ...], modes: tuple[str, ...]
) -> relax.Expr | None:
    """``nn.pad`` of the mode whose tables these are; None if they are those of none of these."""
    for mode in modes:
        widths: list[int] = []
        for table, extent in zip(copy.tables, shape, strict=True):
            found = _widths(table, extent, mode)
            if found is None:
                break
            widths += found
        else:
            return relax.op.nn.pad(source, widths, mode, copy.fill if mode == "constant" else 0.0)
    return None


def _widths(table: np.ndarray, extent: int, mode: str) -> tuple[int, int] | None:
    """Elements before and after the operand in a table of this mode; None for other tables."""
    starts = np.flatnonzero(table == 0)
    if extent == 0 or starts.size == 0:
        return None
    candidates = starts[:1] if mode == "constant" else starts
    for before in candidates:
        after = len(table) - extent - int(before)
        if after < 0 or (mode == "reflect" and max(before, after) >= extent):
            continue
        expected = np.arange(-before, extent + after)
        if mode == "constant":
            expected = np.where((expected >= 0) & (expected < extent), expected, FILL)
        elif mode == "replicate":
            expected = expected.clip(0, extent - 1)
        elif mode == "circular":
            expected = expected % extent
        else:
            folded = np.abs(expected)
            expected = np.where(folded >= extent, 2 * (extent - 1) - folded, folded)
        if np.array_equal(expected, table):
            return int(before), after
    return None
