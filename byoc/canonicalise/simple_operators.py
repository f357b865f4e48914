"""Write operators that are a few others, exactly.

isinf(x)            = |x| == inf
isfinite(x)         = |x| < inf
isnan(float64(x))   = isnan(x), and so the two above
bitwise_not(x)      = -1 - x, or 255 - x of bytes
square(x)           = x * x
negative(x)         = 0 - x            of integers
abs(x)              = max(x, 0 - x)    of integers with a sign, else x
sign(x)             = where(x > 0, 1, where(x < 0, -1, 0))      of integers
floor_mod(x, d)     = where(r < 0, r + d, r)            of integers, where d is constant or a size,
floor_divide(x, d)  = where(r < 0, x / d - 1, x / d)    and above 0, and r = x - (x / d) * d
batch_flatten(x)    = reshape
pixel_shuffle(x, r) = reshape, permute_dims, reshape
tril(x), triu(x)    = where(mask, x, 0)               of a constant mask, or column - row >= k
one_hot(i)          = where(i == [0, 1, ..., depth - 1], on, off)
argmax(x)           = argmax(float(x == max(x)))        of integers, which floats may not hold, and
                                                        argmin(x) by min(x)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax, tirx

from byoc.canonicalise.fold_constants import DTYPES
from byoc.canonicalise.sizes_as_numbers import is_size_above_zero
from byoc.ir.dataflow import Block, array_of, dtype_of, is_kernel_float, op_name, shape_of
from codegen_cc.dim import is_static
from codegen_cc.dtypes import KERNEL_INTEGERS, SINGLE


def simple_operators(block: Block) -> None:
    """Rewrite operators of known shape that have a row in ``WRITERS``."""
    for var, call in block.calls(*WRITERS):
        if shape_of(call.args[0]) is None or shape_of(var) is None:
            continue
        value = WRITERS[op_name(call)](block, var, call)
        if value is not None:
            block.replace(var, value)


def _isinf(block: Block, var: relax.Var, call: relax.Call) -> relax.Expr | None:
    value = _before_widening(block, call.args[0])
    if not is_kernel_float(value):
        return None
    size = block.emit(var, relax.op.abs(value))
    compare = relax.op.equal if op_name(call) == "relax.isinf" else relax.op.less
    return compare(size, relax.const(np.inf, dtype_of(size)))


def _isnan(block: Block, _: relax.Var, call: relax.Call) -> relax.Expr | None:
    value = _before_widening(block, call.args[0])
    return None if value is call.args[0] else relax.op.isnan(value)


def _before_widening(block: Block, value: relax.Expr) -> relax.Expr:
    """What a cast to float64 widened, as PyTorch's older exporter does before IsInf."""
    cast = block.values.get(value) if dtype_of(value) == "float64" else None
    if not isinstance(cast, relax.Call) or op_name(cast) != "relax.astype":
        return value
    return cast.args[0] if is_kernel_float(cast.args[0]) else value


def _bitwise_not(block: Block, var: relax.Var, call: relax.Call) -> relax.Expr | None:
    dtype = dtype_of(var)
    if dtype not in KERNEL_INTEGERS:
        return None
    ones = np.iinfo(dtype).max if dtype.startswith("uint") else -1
    return relax.op.subtract(relax.const(ones, dtype), call.args[0])


def _negative(block: Block, var: relax.Var, call: relax.Call) -> relax.Expr | None:
    if dtype_of(var) not in KERNEL_INTEGERS:
        return None
    value = call.args[0]
    if op_name(call) == "relax.abs" and dtype_of(var).startswith("uint"):
        block.alias(var, value)
        return None
    below = relax.op.subtract(relax.const(0, dtype_of(var)), value)
    if op_name(call) == "relax.negative":
        return below
    return relax.op.maximum(value, block.emit(var, below))


def _sign(block: Block, var: relax.Var, call: relax.Call) -> relax.Expr | None:
    dtype, value = dtype_of(var), call.args[0]
    if dtype not in KERNEL_INTEGERS:
        return None
    zero, one = relax.const(0, dtype), relax.const(1, dtype)
    positive = block.emit(var, relax.op.greater(value, zero))
    if dtype.startswith("uint"):
        return relax.op.where(positive, one, zero)
    negative = block.emit(var, relax.op.less(value, zero))
    below = block.emit(var, relax.op.where(negative, relax.const(-1, dtype), zero))
    return relax.op.where(positive, one, below)


def _floored(block: Block, var: relax.Var, call: relax.Call) -> relax.Expr | None:
    """Quotients are cut off, and so are above what they shall be where the rest is negative."""
    dtype, divisor = dtype_of(var), array_of(call.args[1])
    value, by = call.args
    if dtype not in KERNEL_INTEGERS or (divisor is not None and divisor.size == 0):
        return None
    if divisor is None and not is_size_above_zero(block, by):
        return None
    if divisor is not None and (divisor.min() <= 0 or divisor.max() > np.iinfo(np.int32).max):
        return None  # 2^32: cast_that_wraps
    quotient = block.emit(var, relax.op.divide(value, by))
    whole = block.emit(var, relax.op.multiply(quotient, by))
    rest = block.emit(var, relax.op.subtract(value, whole))
    below = block.emit(var, relax.op.less(rest, relax.const(0, dtype)))
    if op_name(call) == "relax.floor_mod":
        return relax.op.where(below, block.emit(var, relax.op.add(rest, by)), rest)
    lower = block.emit(var, relax.op.subtract(quotient, relax.const(1, dtype)))
    return relax.op.where(below, lower, quotient)


def _pixel_shuffle(block: Block, var: relax.Var, call: relax.Call) -> relax.Expr | None:
    factor = int(call.attrs.upscale_factor)
    channels = shape_of(call.args[0])[-3]
    if not isinstance(channels, int):
        return None
    *lead, _, height, width = call.args[0].ty.shape.values
    n, outer = len(lead), channels // factor**2
    apart = relax.op.reshape(call.args[0], (*lead, outer, factor, factor, height, width))
    order = [*range(n + 1), n + 3, n + 1, n + 4, n + 2]
    moved = relax.op.permute_dims(block.emit(var, apart), order)
    return relax.op.reshape(block.emit(var, moved), var.ty.shape)


def _triangle(block: Block, var: relax.Var, call: relax.Call) -> relax.Expr | None:
    dtype, shape = dtype_of(var), shape_of(var)
    if len(shape) < 2 or not isinstance(call.args[1], tirx.IntImm) or dtype not in DTYPES:
        return None
    lower, diagonal = op_name(call) == "relax.tril", int(call.args[1])
    if not is_static(shape[-2:]):
        kept = _one_side(block, var, lower, diagonal)
    elif lower:
        kept = relax.const(np.tri(*shape[-2:], diagonal, dtype=bool), "bool")
    else:
        kept = relax.const(~np.tri(*shape[-2:], diagonal - 1, dtype=bool), "bool")
    return relax.op.where(kept, call.args[0], relax.const(0, dtype))


def _one_side(block: Block, var: relax.Var, lower: bool, diagonal: int) -> relax.Var:
    """Where the last two axes of a value, of which one is open, are on a side of a diagonal."""
    height, width = var.ty.shape.values[-2:]
    rows, columns = (
        block.emit(var, relax.op.arange(0, extent, 1, "int64")) for extent in (height, width)
    )
    upright = block.emit(var, relax.op.reshape(rows, (height, 1)))
    edge = block.emit(var, relax.op.add(upright, relax.const(diagonal, "int64")))
    compare = relax.op.less_equal if lower else relax.op.greater_equal
    return block.emit(var, compare(columns, edge))


def _one_hot(block: Block, var: relax.Var, call: relax.Call) -> relax.Expr | None:
    indices, on, off = call.args
    if dtype_of(indices) not in ("int32", "int64") or dtype_of(var) not in DTYPES:
        return None
    result = shape_of(var)
    axis = int(call.attrs.axis) % len(result)
    shape = list(indices.ty.shape.values)
    wide = block.emit(var, relax.op.reshape(indices, (*shape[:axis], 1, *shape[axis:])))
    classes = np.arange(int(call.attrs.depth)).reshape([-1] + [1] * (len(result) - axis - 1))
    found = block.emit(var, relax.op.equal(wide, relax.const(classes, dtype_of(indices))))
    values = [
        relax.const(np.asarray(value.value, dtype_of(var)), dtype_of(var)) for value in (on, off)
    ]
    return relax.op.where(found, *values)


def _place(block: Block, var: relax.Var, call: relax.Call) -> relax.Expr | None:
    value, axis = call.args[0], call.attrs.axis
    if dtype_of(value) not in ("int32", "int64") or axis is None:
        return None
    extreme = relax.op.max if op_name(call) == "relax.argmax" else relax.op.min
    most = block.emit(var, extreme(value, int(axis), keepdims=True))
    found = block.emit(var, relax.op.astype(block.emit(var, relax.op.equal(value, most)), SINGLE))
    return relax.op.argmax(found, int(axis), bool(call.attrs.keepdims))


WRITERS: dict[str, Callable[[Block, relax.Var, relax.Call], relax.Expr | None]] = {
    "relax.isinf": _isinf,
    "relax.isfinite": _isinf,
    "relax.isnan": _isnan,
    "relax.bitwise_not": _bitwise_not,
    "relax.negative": _negative,
    "relax.abs": _negative,
    "relax.sign": _sign,
    "relax.floor_mod": _floored,
    "relax.floor_divide": _floored,
    "relax.square": lambda block, var, call: relax.op.multiply(call.args[0], call.args[0]),
    "relax.nn.batch_flatten": lambda block, var, call: relax.op.reshape(call.args[0], var.ty.shape),
    "relax.nn.pixel_shuffle": _pixel_shuffle,
    "relax.tril": _triangle,
    "relax.triu": _triangle,
    "relax.one_hot": _one_hot,
    "relax.argmax": _place,
    "relax.argmin": _place,
}
