"""Eigenvalues and singular values of small matrices, by Jacobi's rotations.

A round turns disjoint pairs of axes at once, each such that its element beside the diagonal becomes
0; after ``n - 1`` rounds every pair had its turn. The signs of vectors are not LAPACK's, which are
no property of the matrix.
"""

from __future__ import annotations

import torch

#: Rows and columns of matrices whose rotations are written out, and of those that need few.
MOST_ROWS, _FEW_ROWS = 16, 4


def _checked(x: torch.Tensor) -> int:
    rows, columns = x.shape[-2:]
    known = all(isinstance(n, int) and 0 < n <= MOST_ROWS for n in (rows, columns))
    if not known or not x.dtype.is_floating_point:
        raise ValueError(
            f"rotations of {x.dtype} matrices [{rows}, {columns}]; need floats, and 1 to "
            f"{MOST_ROWS} rows and columns"
        )
    return columns


def _sweeps(n: int) -> int:
    """How often all pairs are turned: the error is squared each time, once it is small."""
    return 0 if n == 1 else 5 if n <= _FEW_ROWS else 8


def _partners(n: int) -> list[torch.Tensor]:
    """For each round the partner of every axis, their sum being the round's number; the one that is
    half of it meets the last axis of an even number, else itself."""
    here, count = torch.arange(n), n - 1 + n % 2
    rounds = []
    for number in range(count):
        partner = (number - here) % count
        if n % 2 == 0:
            half = number * (count + 1) // 2 % count
            partner = torch.where(here == half, n - 1, partner)
            partner = torch.where(here == n - 1, half, partner)
        rounds.append(partner)
    return rounds


def _rotation(own: torch.Tensor, beside: torch.Tensor, partner: torch.Tensor) -> torch.Tensor:
    """The matrix that turns each pair: ``own`` [..., n] lies on the diagonal, ``beside`` between an
    axis and its partner."""
    here = torch.arange(len(partner))
    first = torch.where(here < partner, 1.0, -1.0).to(own.dtype)
    turned = (here != partner) & (beside != 0)
    slope = (own[..., partner] - own) / torch.where(turned, 2 * beside, 1.0)
    # Both of a pair turn by the same angle, the other way round.
    way = torch.where(slope == 0, first, torch.where(slope < 0, -1.0, 1.0))
    size = slope.abs()
    # The square of a large slope would leave the range of numbers.
    root = torch.where(size > 1e9, size, torch.sqrt(size.clamp(max=1e9).square() + 1))
    tangent = torch.where(turned, way / (size + root), 0.0)
    cosine = torch.rsqrt(tangent.square() + 1)
    pairs = (here[:, None] == partner) & (here != partner)
    identity = torch.eye(len(partner), dtype=own.dtype)
    turn = pairs.to(own.dtype) * (tangent * cosine)[..., None]
    return identity * cosine[..., None] + turn


def _scaled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The matrix by its greatest element, and that element, as squares may leave the range."""
    most = x.abs().amax((-2, -1), keepdim=True)
    most = torch.where(most == 0, 1.0, most)
    return x / most, most


def eigen(x: torch.Tensor, UPLO: str = "L", compute_v: bool = True) -> list[torch.Tensor]:
    """The eigenvalues of symmetric matrices from the least on, and vectors, a column for each."""
    n = _checked(x)
    half = x.tril() if UPLO.upper() == "L" else x.triu()
    matrix, most = _scaled(half + half.mT - half * torch.eye(n, dtype=x.dtype))
    vectors = torch.eye(n, dtype=x.dtype).expand(x.shape)
    for _ in range(_sweeps(n)):
        for partner in _partners(n):
            own = matrix.diagonal(0, -2, -1)
            pairs = torch.arange(n)[:, None] == partner
            beside = (matrix * pairs.mT.to(x.dtype)).sum(-1)
            turn = _rotation(own, beside, partner)
            matrix, vectors = turn.mT @ matrix @ turn, vectors @ turn
    values, order = (matrix.diagonal(0, -2, -1) * most[..., 0]).sort(-1)
    if not compute_v:
        return [values, x.new_empty((0,))]
    return [values, vectors.gather(-1, order[..., None, :].expand(x.shape))]


def singular(
    x: torch.Tensor, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None
) -> list[torch.Tensor]:
    """``U S V^T`` of matrices, the greatest singular value first.

    Columns are turned until they are orthogonal; their lengths are the values.
    """
    del driver
    _checked(x)
    rows, columns = x.shape[-2:]
    if rows < columns:
        right, values, left = singular(x.mT, full_matrices, compute_uv)
        return [left.mT, values, right.mT] if compute_uv else [left, values, right]
    turned, most = _scaled(x)
    vectors = torch.eye(columns, dtype=x.dtype).expand(*x.shape[:-2], columns, columns)
    for _ in range(_sweeps(columns)):
        for partner in _partners(columns):
            beside = (turned * turned[..., partner]).sum(-2)
            turn = _rotation(turned.square().sum(-2), beside, partner)
            turned, vectors = turned @ turn, vectors @ turn
    values, order = turned.square().sum(-2).sqrt().sort(-1, descending=True)
    if not compute_uv:
        return [x.new_empty((0,)), values * most[..., 0], x.new_empty((0,))]
    turned = turned.gather(-1, order[..., None, :].expand(turned.shape))
    vectors = vectors.gather(-1, order[..., None, :].expand(vectors.shape))
    # Reflections make columns of length 0 directions as well.
    left, right = torch.linalg.qr(turned, "complete" if full_matrices else "reduced")
    signs = torch.where(right.diagonal(0, -2, -1) < 0, -1.0, 1.0).to(x.dtype)
    signs = torch.nn.functional.pad(signs, (0, left.shape[-1] - columns), value=1.0)
    return [left * signs[..., None, :], values * most[..., 0], vectors.mT]


def pseudo_inverse(
    x: torch.Tensor,
    *,
    atol: torch.Tensor | None = None,
    rtol: torch.Tensor | None = None,
    hermitian: bool = False,
) -> torch.Tensor:
    """The inverse where there is one; singular values that are small beside the greatest count as
    none."""
    del hermitian  # such matrices have singular values as others have
    left, values, right = singular(x)
    if rtol is None:
        usual = torch.finfo(x.dtype).eps * max(x.shape[-2:])
        rtol = torch.full((), usual if atol is None else 0.0)
    limit = rtol[..., None].to(x.dtype) * values[..., :1]
    if atol is not None:
        limit = torch.maximum(limit, atol[..., None].to(x.dtype))
    inverse = torch.where(values > limit, 1 / values, 0.0)
    return (right.mT * inverse[..., None, :]) @ left.mT


def inverse_of_factor(x: torch.Tensor, upper: bool = False) -> torch.Tensor:
    """The inverse of the matrix that a triangle is the Cholesky factor of."""
    half = x.triu().mT if upper else x.tril()
    return torch.linalg.inv(half @ half.mT)


JACOBI = {
    torch.ops.aten._linalg_eigh.default: eigen,
    torch.ops.aten._linalg_svd.default: singular,
    torch.ops.aten.linalg_pinv.atol_rtol_tensor: pseudo_inverse,
    torch.ops.aten.cholesky_inverse.default: inverse_of_factor,
}
