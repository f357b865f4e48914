"""Inverses, determinants and solutions of small systems, by elimination written out.

Matrices [..., n, n] are computed together, one column after another, with the greatest pivot of
each. Where PyTorch raises an error for a singular matrix, results are infinite or NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tvm import relax

from byoc.frontends.torch.converters.elementwise import sign
from byoc.frontends.torch.converters.movement import part_of
from byoc.frontends.torch.values import Graph, Value
from byoc.ir.dataflow import dtype_of

op = relax.op

#: Rows that are written out.
MOST_ROWS = 32


def _rows(tensor: relax.Expr) -> int:
    """How many rows square matrices have. Raises ``ValueError`` for others."""
    n, columns = (getattr(size, "value", None) for size in tensor.ty.shape.values[-2:])
    if n is None or n != columns or not 0 < n <= MOST_ROWS:
        raise ValueError(
            f"matrices of shape {list(tensor.ty.shape.values)}; need square ones of 1 to "
            f"{MOST_ROWS} rows"
        )
    return int(n)


def _numbers(g: Graph, tensor: relax.Expr, *values: torch.Tensor) -> list[relax.Expr]:
    """Constants in the dtype of a tensor."""
    return [g.tensor(value.to(getattr(torch, dtype_of(tensor)))) for value in values]


def _from_row(g: Graph, both: relax.Expr, row: int, rows: int) -> tuple[relax.Expr, relax.Expr]:
    """Where the greatest element of a column from its diagonal on stands, [..., n, 1], and that
    row of the matrix, [..., 1, m]."""
    rank, dtype = both.ty.ndim, dtype_of(both)
    column = g.emit(op.abs(part_of(both, rank - 1, row, row + 1)))
    at = torch.arange(rows)[:, None]
    size = g.emit(op.where(g.tensor(at >= row), column, g.tensor(-1.0, dtype)))
    place = g.emit(op.argmax(size, rank - 2, keepdims=True))
    chosen = g.emit(op.equal(place, g.tensor(at)))
    picked = g.emit(op.where(chosen, both, g.tensor(0.0, dtype)))
    return chosen, g.emit(op.sum(picked, [rank - 2], keepdims=True))


def _solved(g: Graph, matrix: relax.Expr, sides: relax.Expr) -> relax.Expr:
    """``X`` of ``matrix X = sides``, [..., n, n] and [..., n, m].

    They stand side by side: what turns the one into the identity turns the other into ``X``.
    """
    n, rank = _rows(matrix), matrix.ty.ndim
    both = g.emit(op.concat([matrix, sides], rank - 1))
    for row in range(n):
        chosen, pivots = _from_row(g, both, row, n)
        scaled = g.emit(op.divide(pivots, g.emit(part_of(pivots, rank - 1, row, row + 1))))
        here = g.emit(part_of(both, rank - 2, row, row + 1))
        swapped = g.emit(op.where(chosen, here, both))
        factors = g.emit(part_of(swapped, rank - 1, row, row + 1))
        less = g.emit(op.subtract(swapped, g.emit(op.multiply(factors, scaled))))
        is_it = g.tensor((torch.arange(n) == row)[:, None])
        both = g.emit(op.where(is_it, scaled, less))
    return part_of(both, rank - 1, n, n + sides.ty.shape.values[-1])


def _alike(g: Graph, matrix: relax.Expr, sides: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    """Both with the same outer axes."""
    shapes = [list(tensor.ty.shape.values) for tensor in (matrix, sides)]
    outer = g.shape[: len(g.shape) - 2]
    matrix, sides = (
        tensor if shape[:-2] == outer else g.emit(op.broadcast_to(tensor, [*outer, *shape[-2:]]))
        for tensor, shape in zip((matrix, sides), shapes, strict=True)
    )
    return matrix, sides


def inverse(g: Graph, A: Value, **_: object) -> relax.Expr:
    """The inverse of each matrix."""
    matrix = g.tensor(A)
    shape = list(matrix.ty.shape.values)
    (identity,) = _numbers(g, matrix, torch.eye(_rows(matrix)))
    return _solved(g, matrix, g.emit(op.broadcast_to(identity, shape)))


def inverse_with_info(g: Graph, A: Value, **_: object) -> list[relax.Expr | None]:
    """The same, with codes of errors that nobody may read."""
    return [inverse(g, A), None]


def solve(g: Graph, A: Value, B: Value, left: bool = True, **_: object) -> relax.Expr:
    """``X`` of ``A X = B``, or of ``X A = B``; ``B`` may be vectors, [..., n]."""
    matrix, sides = g.tensor(A), g.tensor(B)
    is_vector = len(g.shape) == matrix.ty.ndim - 1
    if is_vector:
        made = _solved(g, matrix, g.emit(op.expand_dims(sides, sides.ty.ndim)))
        return op.squeeze(g.emit(made), [sides.ty.ndim])
    if not left:
        matrix, sides = _turned(g, matrix), _turned(g, sides)
        shape = [*g.shape[:-2], g.shape[-1], g.shape[-2]]
        wide = [
            g.emit(op.broadcast_to(tensor, [*shape[:-2], *list(tensor.ty.shape.values)[-2:]]))
            for tensor in (matrix, sides)
        ]
        return _turned(g, g.emit(_solved(g, *wide)))
    return _solved(g, *_alike(g, matrix, sides))


def solve_with_info(g: Graph, A: Value, B: Value, **named: object) -> list[relax.Expr | None]:
    """The same, with a decomposition and codes of errors that nobody may read."""
    return [solve(g, A, B, **named), None, None, None]


def _turned(g: Graph, tensor: relax.Expr) -> relax.Expr:
    order = list(range(tensor.ty.ndim))
    order[-2:] = reversed(order[-2:])
    return g.emit(op.permute_dims(tensor, order))


def _diagonal(g: Graph, matrix: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    """The pivots of each matrix, [..., n], and the sign that swapping rows gives, [...]."""
    n, rank, dtype = _rows(matrix), matrix.ty.ndim, dtype_of(matrix)
    zero, one, pivots, swaps = g.tensor(0.0, dtype), g.tensor(1.0, dtype), [], None
    for row in range(n):
        chosen, line = _from_row(g, matrix, row, n)
        pivot = g.emit(part_of(line, rank - 1, row, row + 1))
        pivots.append(pivot)
        stays = g.emit(part_of(chosen, rank - 2, row, row + 1))
        factor = g.emit(op.where(stays, one, g.tensor(-1.0, dtype)))
        swaps = factor if swaps is None else g.emit(op.multiply(swaps, factor))
        if row == n - 1:
            break
        here = g.emit(part_of(matrix, rank - 2, row, row + 1))
        swapped = g.emit(op.where(chosen, here, matrix))
        # Of a column of zeros nothing is to be taken away.
        safe = g.emit(op.where(g.emit(op.equal(pivot, zero)), one, pivot))
        share = g.emit(op.divide(g.emit(part_of(swapped, rank - 1, row, row + 1)), safe))
        less = g.emit(op.subtract(swapped, g.emit(op.multiply(share, line))))
        below = g.tensor((torch.arange(n) > row)[:, None])
        matrix = g.emit(op.where(below, less, swapped))
    diagonal = g.emit(op.concat(pivots, rank - 1)) if n > 1 else pivots[0]
    return g.emit(op.squeeze(diagonal, [rank - 2])), g.emit(op.squeeze(swaps, [rank - 2, rank - 1]))


def determinant(g: Graph, A: Value) -> list[relax.Expr | None]:
    """The product of the pivots, with a decomposition that nobody may read."""
    pivots, swaps = _diagonal(g, g.tensor(A))
    whole = g.emit(op.prod(pivots, [pivots.ty.ndim - 1]))
    return [op.multiply(whole, swaps), None, None]


def sign_and_logarithm(g: Graph, A: Value) -> list[relax.Expr | None]:
    """The sign of the determinant, and the logarithm of its magnitude."""
    pivots, swaps = _diagonal(g, g.tensor(A))
    last = [pivots.ty.ndim - 1]
    signs = g.emit(sign(g, pivots))
    swaps = g.emit(op.multiply(swaps, g.emit(op.prod(signs, last))))
    whole = op.sum(g.emit(op.log(g.emit(op.abs(pivots)))), last)
    return [swaps, whole, None, None]


def cholesky(g: Graph, x: Value, upper: bool = False, **_: object) -> relax.Expr:
    """The lower triangle whose product with its transpose is the matrix, or its transpose."""
    matrix = g.tensor(x)
    n, rank, columns = _rows(matrix), matrix.ty.ndim, []
    if upper:  # the other half may hold anything
        matrix = _turned(g, matrix)
    for column in range(n):
        whole = g.emit(part_of(matrix, rank - 1, column, column + 1))
        root = g.emit(op.sqrt(g.emit(part_of(whole, rank - 2, column, column + 1))))
        below = g.tensor((torch.arange(n) >= column)[:, None])
        scaled = g.emit(op.divide(whole, root))
        made = g.emit(op.where(below, scaled, g.tensor(0.0, dtype_of(matrix))))
        columns.append(made)
        less = g.emit(op.multiply(made, _turned(g, made)))
        matrix = g.emit(op.subtract(matrix, less))
    made = g.emit(op.concat(columns, rank - 1)) if n > 1 else columns[0]
    return _turned(g, made) if upper else made


def cholesky_with_info(g: Graph, x: Value, upper: bool, **_: object) -> list[relax.Expr | None]:
    """The same, with codes of errors that nobody may read."""
    return [cholesky(g, x, upper), None]


def solve_triangular(
    g: Graph,
    x: Value,
    B: Value,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> relax.Expr:
    """``X`` of ``x X = B``, or of ``X x = B``, where one half of ``x`` alone counts."""
    matrix = g.tensor(x)
    rows = _rows(matrix)
    at = torch.arange(rows)
    half = at[:, None] <= at if upper else at[:, None] >= at
    matrix = g.emit(op.where(g.tensor(half), matrix, g.tensor(0.0, dtype_of(matrix))))
    if unitriangular:
        is_one = g.tensor(torch.eye(rows, dtype=torch.bool))
        matrix = g.emit(op.where(is_one, g.tensor(1.0, dtype_of(matrix)), matrix))
    return solve(g, matrix, B, left)


def cholesky_solve(g: Graph, x: Value, input2: Value, upper: bool = False) -> relax.Expr:
    """``X`` of ``L L^T X = x``."""
    factor = g.tensor(input2)
    lower = _turned(g, factor) if upper else factor
    once = g.emit(solve_triangular(g, lower, x, False))
    return solve_triangular(g, _turned(g, lower), once, True)


def added_products(
    g: Graph, x: Value, batch1: Value, batch2: Value, beta: Value = 1, alpha: Value = 1
) -> relax.Expr:
    """``beta x + alpha sum_b batch1[b] batch2[b]``: a product over both axes at once."""
    left, right = g.tensor(batch1), g.tensor(batch2)
    count, rows, inner = left.ty.shape.values
    left = g.emit(op.reshape(g.emit(op.permute_dims(left, [1, 0, 2])), [rows, count * inner]))
    right = g.emit(op.reshape(right, [count * inner, right.ty.shape.values[-1]]))
    made: Sequence[relax.Expr] = [g.emit(op.matmul(left, right)), g.tensor(x)]
    made = [
        part if factor == 1 else g.emit(op.multiply(part, g.tensor(factor, g.dtype)))
        for part, factor in zip(made, (alpha, beta), strict=True)
    ]
    return made[0] if beta == 0 else op.add(*made)


LINEAR_ALGEBRA = {
    "linalg_inv": inverse,
    "inverse": lambda g, x: inverse(g, x),
    "linalg_inv_ex": inverse_with_info,
    "linalg_solve": solve,
    "_linalg_solve_ex": solve_with_info,
    "_linalg_det": determinant,
    "_linalg_slogdet": sign_and_logarithm,
    **dict.fromkeys(("cholesky", "linalg_cholesky"), cholesky),
    "linalg_cholesky_ex": cholesky_with_info,
    "linalg_solve_triangular": solve_triangular,
    "cholesky_solve": cholesky_solve,
    "addbmm": added_products,
}
