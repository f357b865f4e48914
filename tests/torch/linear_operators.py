"""Small systems of equations, and bags of rows of a table."""

from __future__ import annotations

import torch
from torch import linalg, nn

from tests.torch.case import Case

torch.manual_seed(11)
_MATRICES, _SIDES = torch.randn(2, 4, 4), torch.randn(2, 4, 3)
_POSITIVE = _MATRICES @ _MATRICES.mT + torch.eye(4)
#: A pivot that is not where elimination begins, and rows that are the same.
_TURNED = torch.tensor([[[0.0, 1, 2], [1, 0, 3], [4, 5, 0]], [[1, 2, 3], [1, 2, 3], [0, 1, 1]]])
_FACTOR = linalg.cholesky(_POSITIVE)

#: A function of matrices.
LINEAR: dict[str, Case] = {
    "inverse": (linalg.inv, (_MATRICES,)),
    "inverse_alone": (torch.inverse, (torch.randn(5, 5),)),
    "inverse_of_many": (linalg.inv, (torch.randn(16, 16) + 16 * torch.eye(16),)),
    "inverse_with_info": (lambda x: linalg.inv_ex(x)[0], (_MATRICES,)),
    "determinant": (linalg.det, (_TURNED,)),
    "determinant_1": (torch.det, (torch.randn(2, 1, 1),)),
    "sign_and_logarithm": (lambda x: torch.stack(linalg.slogdet(x)), (_MATRICES,)),
    "logarithm": (torch.logdet, (_POSITIVE,)),
    "solve": (linalg.solve, (_MATRICES, _SIDES)),
    "solve_vectors": (linalg.solve, (_MATRICES, torch.randn(2, 4))),
    "solve_alike": (linalg.solve, (_MATRICES[0], _SIDES)),
    "solve_right": (lambda a, b: linalg.solve(a, b, left=False), (_MATRICES, _SIDES.mT)),
    "lu": (lambda x: torch.stack(linalg.lu(x)), (_MATRICES,)),
    "lu_turned": (lambda x: torch.stack(linalg.lu(x)), (_TURNED,)),
    "lu_tall": (lambda x: torch.cat([linalg.lu(x)[1], x], 1), ((2, 5, 3),)),
    "lu_wide": (lambda x: linalg.lu(x)[1] @ linalg.lu(x)[2], ((2, 3, 5),)),
    "lu_factors": (lambda x: linalg.lu_factor_ex(x)[0], (_TURNED,)),
    "lu_pivots": (lambda x: linalg.lu_factor(x)[1], (_MATRICES,)),
    "lu_info": (lambda x: linalg.lu_factor_ex(x)[2], (_TURNED,)),
    "lu_solve": (lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b), (_MATRICES, _SIDES)),
    "cholesky": (linalg.cholesky, (_POSITIVE,)),
    "cholesky_upper": (lambda x: linalg.cholesky(x, upper=True), (_POSITIVE,)),
    "cholesky_solve": (torch.cholesky_solve, (_SIDES, _FACTOR)),
    "cholesky_solve_upper": (
        lambda b, x: torch.cholesky_solve(b, x.mT, upper=True),
        (_SIDES, _FACTOR),
    ),
    "triangular": (lambda a, b: linalg.solve_triangular(a, b, upper=False), (_POSITIVE, _SIDES)),
    "triangular_ones": (
        lambda a, b: linalg.solve_triangular(a, b, upper=True, left=False, unitriangular=True),
        (_MATRICES, _SIDES.mT),
    ),
    "power": (lambda x: linalg.matrix_power(x, -2), (_POSITIVE,)),
    "added_products": (
        lambda x, a, b: torch.addbmm(x, a, b, beta=0.5, alpha=2),
        ((3, 5), (2, 3, 4), (2, 4, 5)),
    ),
}

_ROWS = torch.tensor([3, 2, 0, 2, 2, 1, 3, 2])
_BEGINS = torch.tensor([0, 2, 2, 5])


def _bags(mode: str) -> dict[str, Case]:
    """Bags that are alike, that are not, empty ones, and rows that do not count."""
    bag, padded = (nn.EmbeddingBag(4, 5, mode=mode, padding_idx=p) for p in (None, 2))
    last = nn.EmbeddingBag(4, 5, mode=mode, include_last_offset=True)
    return {
        f"{mode}_alike": (bag, (_ROWS.reshape(2, 4),)),
        f"{mode}_known": (lambda x: bag(x, _BEGINS), (_ROWS,)),
        f"{mode}_begins": (bag, (_ROWS, _BEGINS)),
        f"{mode}_int32": (bag, (_ROWS.int(), _BEGINS.int())),
        f"{mode}_ends": (last, (_ROWS, torch.tensor([0, 2, 2, 8]))),
        f"{mode}_padded": (padded, (_ROWS, _BEGINS)),
        f"{mode}_padded_alone": (padded, (torch.tensor([[2, 2], [1, 2]]),)),
    }


_WEIGHED = nn.EmbeddingBag(4, 5, mode="sum")

BAGS: dict[str, Case] = {
    **_bags("sum"),
    **_bags("mean"),
    **_bags("max"),
    "weighed": (lambda x, at, by: _WEIGHED(x, at, per_sample_weights=by), (_ROWS, _BEGINS, (8,))),
}
