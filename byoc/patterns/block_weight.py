"""Products of floats with a weight of integers: what dequantises the weight, as part of the node.

matmul(x, dequantize(w))                          one scale, or one for each column
matmul(x, reshape((astype(q) - zero) * scale))    blocks (see ``byoc.canonicalise.block_weight``)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax

from byoc.canonicalise.block_weight import block_weight
from byoc.canonicalise.dequantised_weights import DEQUANTIZE
from byoc.ir.dataflow import Block, Constant, array_of
from byoc.patterns.row import Candidate, tensor
from codegen_cc.dtypes import KERNEL_BYTES
from codegen_cc.operators.block_weight import BLOCK_SCALES


def with_block_weight(
    block: Block, found: Candidate
) -> tuple[Candidate, tuple[relax.Var, ...]] | None:
    """A product as one with the integers behind its weight, and the bindings that it takes in.

    None where the weight is something else, or others read it as well.
    """
    if found.node.op != "matmul":
        return None
    parts = _blocks(block, found.arguments[1]) or _columns(block, found.arguments[1])
    if parts is None:
        return None
    values, numbers, bindings = parts
    arrays = [array_of(number) for number in numbers]
    finite = all(array is not None and np.isfinite(array).all() for array in arrays)
    if not finite or not all(map(block.is_private, bindings)):
        return None
    rhs = replace(tensor(values, "rhs"), dtype=_stored(values))
    scales = zip(BLOCK_SCALES, numbers, strict=False)
    operands = (found.node.operands[0], rhs, *(tensor(value, role) for role, value in scales))
    node = replace(found.node, operands=operands)
    return Candidate(node, (found.arguments[0], values, *numbers)), bindings


_Parts = tuple[Constant, tuple[Constant, ...], tuple[relax.Var, ...]]


def _blocks(block: Block, expr: relax.Expr) -> _Parts | None:
    found = block_weight(block, expr)
    if found is None or found.columns_first:
        return None
    numbers = (found.scale,) if found.zero_point is None else (found.scale, found.zero_point)
    return found.values, numbers, found.bindings


def _columns(block: Block, expr: relax.Expr) -> _Parts | None:
    call = block.call(expr, DEQUANTIZE)
    if call is None or not all(isinstance(argument, Constant) for argument in call.args):
        return None
    values, scale, zero_point = call.args
    rank = len(values.ty.shape.values)
    array = array_of(scale)
    if str(values.ty.dtype) not in KERNEL_BYTES or rank != 2 or array.dtype != np.single:
        return None
    if array.size > 1 and int(call.attrs.axis) % rank != 1:
        return None
    numbers = (scale, zero_point) if array_of(zero_point).any() else (scale,)
    return values, numbers, (expr,)


def _stored(values: Constant) -> str:
    """The narrowest dtype that a weight can be stored in."""
    array, dtype = array_of(values), str(values.ty.dtype)
    low, high = (-8, 7) if dtype == "int8" else (0, 15)
    small = array.min(initial=0) >= low and array.max(initial=0) <= high
    return dtype.replace("8", "4") if small else dtype
