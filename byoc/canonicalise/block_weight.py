"""Weights of few bits whose blocks have scales of their own, as importers write them.

    reshape((astype(q) - zero) * scale, [blocks * block, N])[:K]

with constants q [blocks, block, N] of 8-bit integers, zero and scale [blocks, 1, N] is the right
side of a product, which has a kernel on q (``byoc.patterns.block_weight``).  So it is not folded to
floats.  The subtraction and the slice may be missing.  One that is transposed before the product,

    permute(reshape((astype(q) - zero) * scale, [N, blocks * block])[:, :K])

with q [N, blocks, block], becomes the above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax

from byoc.ir.dataflow import Block, Constant, array_of, constant, dtype_of, op_name, static_shape_of
from byoc.ir.pattern import call, either, find
from codegen_cc.dtypes import KERNEL_BYTES, SINGLE

#: What it is written in.
_STEPS = (
    "relax.astype",
    "relax.subtract",
    "relax.multiply",
    "relax.reshape",
    "relax.strided_slice",
    "relax.permute_dims",
)


_FLOATS = call("astype", "q", name="cast")
_SHIFTED = either(call("subtract", _FLOATS, "zero"), _FLOATS)
_FLAT = call("reshape", call("multiply", _SHIFTED, "scale"))
_WEIGHT = either(call("strided_slice", _FLAT, name="slice"), _FLAT)


@dataclass(frozen=True)
class BlockWeight:
    """A weight: its constants, whether columns come first in them, its shape and its bindings."""

    values: Constant
    scale: Constant
    zero_point: Constant | None
    columns_first: bool
    shape: tuple[int, int]
    bindings: tuple[relax.Var, ...]

    def floats(self) -> np.ndarray:
        """The weight in single precision."""
        values = array_of(self.values).astype(np.single)
        if self.zero_point is not None:
            values = values - array_of(self.zero_point)
        values = values * array_of(self.scale)
        rows, columns = self.shape
        whole = (rows, -1) if self.columns_first else (-1, columns)
        return np.ascontiguousarray(values.reshape(whole)[:rows, :columns])


def block_weight(block: Block, expr: relax.Expr) -> BlockWeight | None:
    """The weight that an expression is; None for others."""
    shape, found = static_shape_of(expr), find(block, expr, _WEIGHT)
    if shape is None or len(shape) != 2 or found is None or dtype_of(found["cast"]) != SINGLE:
        return None
    q, scale, zero_point = (found.get(name) for name in ("q", "scale", "zero"))
    numbers = [number for number in (scale, zero_point) if number is not None]
    if not all(isinstance(item, Constant) for item in (q, *numbers)):
        return None
    columns_first, sliced = _columns_first(q, numbers), found.get("slice")
    if columns_first is None:
        return None
    if sliced is not None and not _cuts(block.values[sliced], columns_first):
        return None
    ordered = tuple(reversed(found.bindings))
    return BlockWeight(q, scale, zero_point, columns_first, shape, ordered)


def _columns_first(values: Constant, numbers: list[Constant]) -> bool | None:
    """Whether the blocks lie along the last axis, or not; None if they are no blocks."""
    shape = static_shape_of(values)
    if shape is None or len(shape) != 3 or str(values.ty.dtype) not in KERNEL_BYTES:
        return None
    for first, axis in ((False, 1), (True, 2)):
        wanted = (*shape[:axis], 1, *shape[axis + 1 :])
        if all(static_shape_of(number) == wanted for number in numbers):
            return first
    return None


def _cuts(sliced: relax.Call, columns_first: bool) -> bool:
    """Whether a slice takes the first numbers along the axis of the blocks."""
    whole, part = static_shape_of(sliced.args[0]), static_shape_of(sliced)
    axes, begin, _, *strides = sliced.args[1:]
    steps = [int(step) for group in strides for step in _integers(group)]
    other = 0 if columns_first else 1
    starts = [*_integers(begin)]
    return (
        whole[other] == part[other]
        and not any(starts)
        and all(step == 1 for step in steps)
        and len(_integers(axes)) == len(starts)
    )


def _integers(expr: relax.Expr) -> list[int]:
    items = expr.fields if isinstance(expr, relax.Tuple) else expr.values
    return [int(item.value) for item in items]


def is_kept_block(block: Block, var: relax.Var) -> bool:
    """Whether a variable is a part of such a weight of a product."""
    last = var
    for _ in _STEPS:  # of each there is one at most
        if op_name(block.values.get(last)) not in _STEPS or block.is_fixed(last):
            return False
        users = block.users(last)
        user = block.values[users[0]] if len(users) == 1 else None
        if op_name(user) == "relax.matmul":
            if user.args[1] != last or user.args[0] == last:
                return False
            found = _turned(block, last)
            return found is not None and var in found.bindings
        if op_name(user) not in _STEPS:
            return False
        last = users[0]
    return False


def _turned(block: Block, expr: relax.Expr) -> BlockWeight | None:
    """The weight that an expression is, or is after it was transposed."""
    turned = block.call(expr, "relax.permute_dims")
    if turned is None:
        return block_weight(block, expr)
    found = block_weight(block, turned.args[0])
    if found is None or not found.columns_first:
        return None
    bindings = (*found.bindings, expr)
    return BlockWeight(found.values, found.scale, found.zero_point, True, found.shape, bindings)


def block_weights(block: Block) -> None:
    """Transpose the integers instead of the weight."""
    for var, turned in block.calls("relax.permute_dims"):
        found = _turned(block, var)
        if found is None or not all(map(block.is_private, found.bindings[:-1])):
            continue
        q, scale = _blocks_first(found.values), _blocks_first(found.scale)
        zero_point = None if found.zero_point is None else _blocks_first(found.zero_point)
        weight = emit_block_weight(
            lambda expr, at=var: block.emit(at, expr, "blocks"), q, scale, zero_point
        )
        rows = static_shape_of(turned)[0]
        if rows != static_shape_of(weight)[0]:
            weight = relax.op.strided_slice(weight, [0], [0], [rows])
            block.replace(var, weight)
        else:
            block.alias(var, weight)


def emit_block_weight(
    emit: Callable[[relax.Expr], relax.Expr],
    q: Constant,
    scale: Constant,
    zero_point: Constant | None = None,
    shape: tuple[int, int] | None = None,
) -> relax.Expr:
    """The weight of constants of rank 3; ``emit(expr)`` binds an expression.

    By default blocks come first, and it is [blocks * block, N].
    """
    value = emit(relax.op.astype(q, SINGLE))
    if zero_point is not None:
        value = emit(relax.op.subtract(value, zero_point))
    value = emit(relax.op.multiply(value, scale))
    blocks, block, columns = static_shape_of(q)
    return emit(relax.op.reshape(value, shape or (blocks * block, columns)))


def _blocks_first(expr: Constant) -> Constant:
    array = np.ascontiguousarray(array_of(expr).transpose(1, 2, 0))
    return constant(array, str(array.dtype))
