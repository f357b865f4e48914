"""The inverse of matrices, by elimination with the greatest pivot of each column."""

from __future__ import annotations

import numpy as np

from byoc.frontends.onnx.bodies.call import Call

#: Rows that are written out.
MOST_ROWS = 16


def inverse(call: Call) -> bool:
    """Of the last two axes, [..., n, n].

    Matrix and identity stand side by side, [B, n, 2 n]; what turns the one into the identity turns
    the other into the inverse.
    """
    shape = call.shape()
    if shape is None or len(shape) < 2 or shape[-1] != shape[-2]:
        return False
    n = shape[-1]
    if n is None or not 0 < n <= MOST_ROWS:
        return False
    matrix = call.reshape(call.input(0), -1, n, n)
    identity = call.op("Where", call.constant(np.eye(n), bool), call.number(1.0), call.number(0.0))
    batch = call.op("Concat", call.extent(matrix, 0), call.integers(n, n), axis=0)
    both = call.op("Concat", matrix, call.op("Expand", identity, batch), axis=2)
    for row in range(n):
        both = _without(call, both, row, n)
    call.give(0, call.op("Reshape", call.slice(both, 2, n, 2 * n), call.op("Shape", call.input(0))))
    return True


def _without(call: Call, both: str, row: int, n: int) -> str:
    """One column of the matrix becomes that of the identity; a pivot from below comes up."""
    column = call.slice(both, 2, row, row + 1)  # [B, n, 1]
    rows = np.arange(n)[None, :, None]
    below = call.constant(rows >= row, bool)
    size = call.op("Where", below, call.op("Abs", column), call.number(-1.0))
    place = call.op("ArgMax", size, axis=1, keepdims=1)  # [B, 1, 1]
    chosen = call.op("Equal", place, call.constant(rows, np.int64))  # [B, n, 1]
    picked = call.op("Where", chosen, both, call.number(0.0))
    pivots = call.over("ReduceSum", picked, [1], keepdims=1)  # [B, 1, 2 n]
    scaled = call.op("Div", pivots, call.slice(pivots, 2, row, row + 1))
    swapped = call.op("Where", chosen, call.slice(both, 1, row, row + 1), both)
    factors = call.slice(swapped, 2, row, row + 1)
    less = call.op("Sub", swapped, call.op("Mul", factors, scaled))
    return call.op("Where", call.constant(rows == row, bool), scaled, less)
