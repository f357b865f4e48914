"""Write backward reading as ``take``.

``flip`` along an axis of extent n takes n - 1, ..., 1, 0: constants where n is known, else what
the region computes. A slice with a negative step takes what it would step through.
"""

from __future__ import annotations

import numpy as np
from tvm import relax, tirx

from byoc.ir.dataflow import Block, op_name, shape_of, static_shape_of


def take_of_constants(block: Block) -> None:
    """Rewrite flips, and slices with negative steps of static shape."""
    for var, call in block.calls("relax.flip", "relax.strided_slice"):
        shape = static_shape_of(call.args[0])
        if op_name(call) == "relax.flip":
            _flip(block, var, call)
        elif shape is not None and static_shape_of(var) is not None:
            _backward_slice(block, var, call, shape)


def _flip(block: Block, var: relax.Var, call: relax.Call) -> None:
    shape = shape_of(call.args[0])
    if shape is None or call.attrs.axis is None:
        return
    axis = int(call.attrs.axis) % len(shape)
    if isinstance(shape[axis], int):
        block.replace(var, take_of(call.args[0], np.arange(shape[axis])[::-1], axis))
        return
    extent = call.args[0].ty.shape.values[axis]
    total = block.emit(var, relax.op.shape_to_tensor(relax.ShapeExpr([extent])))
    last = block.emit(var, relax.op.subtract(total, relax.const(1, "int64")))
    ahead = block.emit(var, relax.op.arange(0, extent, 1, "int64"))
    places = block.emit(var, relax.op.subtract(last, ahead))
    block.replace(var, relax.op.take(call.args[0], places, axis=axis))


def _backward_slice(block: Block, var: relax.Var, call: relax.Call, shape: tuple[int, ...]) -> None:
    lists = [list(item.fields) for item in call.args[1:] if isinstance(item, relax.Tuple)]
    if len(lists) != 4 or len(call.args) != 5:
        return
    if not all(isinstance(item, tirx.IntImm) for items in lists for item in items):
        return
    numbers = [[int(item) for item in items] for items in lists]
    if all(step > 0 for step in numbers[3]) or 0 in numbers[3]:
        return
    axes = [axis % len(shape) for axis in numbers[0]]
    tables = [
        np.arange(shape[axis])[_slice(begin, end, step, shape[axis])]
        for axis, begin, end, step in zip(axes, *numbers[1:], strict=True)
    ]
    extents = list(shape)
    for axis, table in zip(axes, tables, strict=True):
        extents[axis] = len(table)
    if tuple(extents) != static_shape_of(var) or 0 in extents:
        return
    source = call.args[0]
    for axis, table in list(zip(axes, tables, strict=True))[:-1]:
        source = block.emit(var, take_of(source, table, axis))
    block.replace(var, take_of(source, tables[-1], axes[-1]))


def _slice(begin: int, end: int, step: int, extent: int) -> slice:
    """Python's slice; an end before the first element is how ONNX says "to the beginning"."""
    if step < 0 and end < -extent:
        return slice(begin, None, step)
    return slice(begin, end, step)


def take_of(source: relax.Expr, table: np.ndarray, axis: int) -> relax.Expr:
    """The elements of a tensor along an axis that stand in a table."""
    return relax.op.take(source, relax.const(table.astype("int64"), "int64"), axis=axis)
