"""Remove operators that return their operand, and join reshapes and transposes of each other.

Only what is exact goes: ``x * 1`` and ``x / 1`` return x for every x, whereas ``x + 0`` turns
-0 into +0 and stays.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.ir.dataflow import Block, array_of, dtype_of, op_name, scalar_of, shape_of
from codegen_cc.dtypes import DTYPES

SAME_SHAPE = ("relax.reshape", "relax.broadcast_to")


def remove_no_ops(block: Block) -> None:
    """Let users of a no-op read its operand."""
    for var in block.ordered():
        value = block.values.get(var)
        if value is None:
            continue
        if isinstance(value, relax.Var):
            block.alias(var, value)
        elif isinstance(value, relax.TupleGetItem):
            _skip_dropout(block, var, value)
        elif isinstance(value, relax.Call):
            _join_with_operand(block, var, value)
            source = _identity_of(block.values[var])
            if source is not None:
                block.alias(var, source)


def _skip_dropout(block: Block, var: relax.Var, item: relax.TupleGetItem) -> None:
    """Dropout does nothing at inference; its result is the first of a pair."""
    dropout = block.call(item.tuple_value, "relax.nn.dropout")
    if dropout is not None and item.index == 0:
        block.alias(var, dropout.args[0])


def _identity_of(call: relax.Call) -> relax.Expr | None:
    """The operand that a call returns unchanged, or None."""
    name = op_name(call)
    source = call.args[0] if call.args else None
    if name in SAME_SHAPE and shape_of(source) is not None:
        return source if shape_of(source) == shape_of(call) else None
    if name == "relax.permute_dims":
        axes = permuted_axes(call)
        return source if axes == sorted(axes) else None
    if name == "relax.astype":
        return source if dtype_of(source) == dtype_of(call) else None
    if name == "relax.concat" and isinstance(source, relax.Tuple) and len(source.fields) == 1:
        return source.fields[0]
    if name == "relax.strided_slice" and shape_of(source) is not None:
        forward = all(int(step) > 0 for step in call.args[4].fields) if len(call.args) > 4 else True
        return source if forward and shape_of(source) == shape_of(call) else None
    if name in ("relax.multiply", "relax.divide") and scalar_of(call.args[1]) == 1.0:
        return source if shape_of(source) == shape_of(call) else None
    if name == "relax.multiply" and scalar_of(source) == 1.0:
        return call.args[1] if shape_of(call.args[1]) == shape_of(call) else None
    if name == "relax.where":
        return _branch_taken(call)
    return None


def _holds_all(wide: str, narrow: str) -> bool:
    """Whether a dtype of NumPy's has every number of another one; NumPy takes float64 for one that
    has all integers."""
    if not all(name in DTYPES and DTYPES[name].is_numpys for name in (wide, narrow)):
        return False
    rounds = np.dtype(wide).kind == "f" and narrow.endswith("int64")
    return np.can_cast(narrow, wide, "safe") and not rounds


def _branch_taken(call: relax.Call) -> relax.Expr | None:
    """The operand that a choice with a constant, uniform condition always takes, or None."""
    condition = array_of(call.args[0])
    if condition is None or condition.size == 0 or condition.any() != condition.all():
        return None
    branch = call.args[1] if condition.all() else call.args[2]
    return branch if shape_of(branch) == shape_of(call) else None


def permuted_axes(call: relax.Call) -> list[int]:
    rank = int(call.args[0].ty.ndim)
    if call.attrs.axes is None:
        return list(range(rank))[::-1]
    return [int(axis) % rank for axis in call.attrs.axes]


def _adds_nothing(part: relax.Expr, axis: int | None) -> bool:
    """Whether a part of a concatenation has no elements, whatever its open extents are."""
    shape = shape_of(part)
    return shape is not None and axis is not None and shape[axis] == 0


def _join_with_operand(block: Block, var: relax.Var, call: relax.Call) -> None:
    """Read through a reshape of a reshape, a transpose of a transpose, and a cast to a dtype that
    holds all numbers, and back; leave out what adds nothing to a concatenation."""
    if op_name(call) == "relax.reshape":
        inner = block.call(call.args[0], "relax.reshape")
        # To Relax's reshape, an extent of 0 means the operand's.
        if inner is not None and shape_of(var) is not None and 0 not in shape_of(var):
            block.replace(var, relax.op.reshape(inner.args[0], var.ty.shape))
    elif op_name(call) == "relax.astype":
        inner = block.call(call.args[0], "relax.astype")
        same = inner is not None and dtype_of(inner.args[0]) == dtype_of(var)
        if same and _holds_all(dtype_of(inner), dtype_of(var)):
            block.replace(var, relax.op.astype(inner.args[0], dtype_of(var)))
    elif op_name(call) == "relax.concat" and isinstance(call.args[0], relax.Tuple):
        parts = call.args[0].fields
        axis = None if call.attrs.axis is None else int(call.attrs.axis)
        some = [part for part in parts if not _adds_nothing(part, axis)]
        if 0 < len(some) < len(parts):
            block.replace(var, relax.op.concat(some, axis))
    elif op_name(call) == "relax.permute_dims":
        inner = block.call(call.args[0], "relax.permute_dims")
        if inner is not None:
            first = permuted_axes(inner)
            axes = [first[axis] for axis in permuted_axes(call)]
            block.replace(var, relax.op.permute_dims(inner.args[0], axes))
