"""Decompositions of small matrices into two triangles and an order of rows, by elimination.

The greatest element of each column is the pivot, the first of several, as LAPACK has it.
"""

from __future__ import annotations

import torch

#: Rows and columns of matrices that are written out.
MOST = 32


def _checked(x: torch.Tensor) -> tuple[int, int]:
    rows, columns = x.shape[-2:]
    if not all(isinstance(n, int) and 0 < n <= MOST for n in (rows, columns)):
        raise ValueError(f"LU of matrices [{rows}, {columns}]; need 1 to {MOST} of each")
    return rows, columns


def _picked(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Rows of each matrix in another order."""
    return x.gather(-2, rows.unsqueeze(-1).expand(*rows.shape, x.shape[-1]))


def _eliminated(x: torch.Tensor, pivot: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Both triangles in one matrix, the row that was swapped at each step, and the order."""
    rows, columns = _checked(x)
    at, across = torch.arange(rows), torch.arange(columns)
    order = at.expand(*x.shape[:-2], rows)
    swapped = []
    for k in range(min(rows, columns)):
        sizes = torch.where(at >= k, x[..., k].abs(), -1.0)
        place = sizes.argmax(-1, keepdim=True) if pivot else torch.full_like(order[..., :1], k)
        swapped.append(place)
        rows_now = torch.where(at == k, place, torch.where(at == place, k, at))
        if pivot:
            x = _picked(x, rows_now)
            order = order.gather(-1, rows_now)
        head = x[..., k : k + 1, k : k + 1]
        # Of a column of zeros nothing is to be taken away.
        share = x[..., k : k + 1] / torch.where(head == 0, 1.0, head)
        below = (at > k).unsqueeze(-1)
        behind = x - share * torch.where(across > k, x[..., k : k + 1, :], 0.0)
        x = torch.where(below, torch.where(across == k, share, behind), x)
    return x, torch.cat(swapped, -1), order


def decomposed(
    A: torch.Tensor, *, pivot: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``P``, ``L`` and ``U`` of ``A = P L U``."""
    both, _, order = _eliminated(A, pivot)
    rows, columns = A.shape[-2:]
    least = min(rows, columns)
    swaps = (torch.arange(rows).unsqueeze(-1) == order.unsqueeze(-2)).to(A.dtype)
    lower = both[..., :least].tril(-1) + torch.eye(rows, least, dtype=A.dtype)
    return swaps, lower, both[..., :least, :].triu()


def factors(A: torch.Tensor, *, pivot: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """Both triangles in one matrix, and the row, from 1 on, that each was swapped with."""
    both, swapped, _ = _eliminated(A, pivot)
    return both, (swapped + 1).to(torch.int32)


def factors_with_info(
    A: torch.Tensor, *, pivot: bool = True, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same, and the first column without a pivot, from 1 on, or 0."""
    both, swapped = factors(A, pivot=pivot)
    heads = both.diagonal(0, -2, -1)
    places = torch.arange(1, heads.shape[-1] + 1)
    first = torch.where(heads == 0, places, MOST + 1).amin(-1)
    return both, swapped, torch.where(first > MOST, 0, first).to(torch.int32)


def solved(
    LU: torch.Tensor,
    pivots: torch.Tensor,
    B: torch.Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> torch.Tensor:
    """``X`` of ``A X = B``, where ``LU`` and ``pivots`` are those of ``A``."""
    rows, _ = _checked(LU)
    if not left or adjoint:
        raise ValueError("lu_solve from the right, or of an adjoint matrix; need neither")
    at = torch.arange(rows)
    order = at.expand(*pivots.shape[:-1], rows)
    for k in range(rows):
        place = pivots[..., k : k + 1].to(torch.int64) - 1
        rows_now = torch.where(at == k, place, torch.where(at == place, k, at))
        order = order.gather(-1, rows_now)
    turned = _picked(B, order)
    inner = torch.linalg.solve_triangular(LU, turned, upper=False, unitriangular=True)
    return torch.linalg.solve_triangular(LU, inner, upper=True)


def solved_from_side(
    x: torch.Tensor, LU_data: torch.Tensor, LU_pivots: torch.Tensor
) -> torch.Tensor:
    """The same under its older name."""
    return solved(LU_data, LU_pivots, x)


aten = torch.ops.aten
LU = {
    aten.linalg_lu.default: decomposed,
    aten.linalg_lu_factor.default: factors,
    aten.linalg_lu_factor_ex.default: factors_with_info,
    aten.linalg_lu_solve.default: solved,
    aten.lu_solve.default: solved_from_side,
}
