"""Determinants, by elimination with the greatest pivot of each column."""

from __future__ import annotations

from functools import reduce
from operator import mul

import numpy as np
from tvm import relax

from byoc.frontends.onnx.converters.node import Node
from codegen_cc.dim import is_static

#: Rows that are written out.
MOST_ROWS = 16


def det(node: Node) -> relax.Expr:
    """Of the last two axes, [..., n, n] to [...]."""
    shape, dtype = node.shape(), node.dtype()
    if shape is None or not is_static(shape[-2:]) or shape[-1] != shape[-2]:
        raise ValueError(f"matrices of shape {list(shape or ())}; need known, square ones")
    n, op, emit = shape[-1], relax.op, node.emit
    if not 0 < n <= MOST_ROWS:
        raise ValueError(f"matrices of {n} rows; need 1 to {MOST_ROWS}")
    zero, one = relax.const(0, dtype), relax.const(1, dtype)
    outside = list(node.inputs[0].ty.shape.values[:-2])
    rest = emit(op.reshape(node.inputs[0], [reduce(mul, outside, 1), n, n]))
    result: relax.Expr | None = None
    for rows in range(n, 0, -1):
        column = emit(op.strided_slice(rest, [2], [0], [1]))  # [B, rows, 1]
        place = emit(op.argmax(op.abs(column), 1, keepdims=True))  # [B, 1, 1]
        hot = emit(op.equal(place, relax.const(np.arange(rows)[None, :, None], "int64")))
        pivots = emit(op.sum(op.where(hot, rest, zero), 1, keepdims=True))  # [B, 1, rows]
        pivot = emit(op.strided_slice(pivots, [2], [0], [1]))  # [B, 1, 1]
        moved = op.equal(place, relax.const(0, "int64"))
        factor = emit(op.where(moved, pivot, op.negative(pivot)))
        result = factor if result is None else emit(op.multiply(result, factor))
        if rows == 1:
            break
        first = op.strided_slice(rest, [1], [0], [1])
        rest = emit(op.where(hot, first, rest))
        below = emit(op.strided_slice(rest, [1], [1], [rows]))
        safe = op.where(op.equal(pivot, zero), one, pivot)
        share = op.divide(op.strided_slice(below, [2], [0], [1]), safe)
        less = op.multiply(share, op.strided_slice(pivots, [2], [1], [rows]))
        rest = emit(op.subtract(op.strided_slice(below, [2], [1], [rows]), less))
    return op.reshape(result, outside)
