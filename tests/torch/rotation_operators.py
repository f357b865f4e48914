"""Eigenvalues and singular values; of vectors what does not depend on their signs."""

from __future__ import annotations

import torch
from torch import linalg

from tests.torch.case import Case

torch.manual_seed(13)
_MATRIX = torch.randn(3, 3)
_POSITIVE = _MATRIX @ _MATRIX.mT + torch.eye(3)
#: Points of a plane, so that one singular value is 0.
_FLAT = torch.randn(6, 3) * torch.tensor([1.0, 2.0, 0.0])


def _from_eigen(x: torch.Tensor, half: str) -> torch.Tensor:
    values, vectors = linalg.eigh(x, half)
    return vectors @ (values.exp()[..., None] * vectors.mT)


def _rotation(points: torch.Tensor, turned: torch.Tensor) -> torch.Tensor:
    """Kabsch's rotation of one set of points to the other."""
    left, _, right = linalg.svd(points.mT @ turned)
    sign = torch.sign(linalg.det(left @ right))
    corrected = torch.cat([left[:, :-1], left[:, -1:] * sign], 1)
    return corrected @ right


_TURN = torch.matrix_exp(torch.tensor([[0, 0.3, -0.2], [-0.3, 0, 0.5], [0.2, -0.5, 0]]))

#: A function of matrices.
ROTATIONS: dict[str, Case] = {
    "eigenvalues_1": (linalg.eigvalsh, (torch.randn(2, 1, 1),)),
    "eigen_upper": (lambda x: _from_eigen(x, "U"), (torch.randn(3, 2, 2),)),
    "rotation_flat": (_rotation, (_FLAT, _FLAT @ _TURN)),
    "pseudo_inverse": (linalg.pinv, (torch.randn(2, 2, 3),)),
    "greatest_norm": (lambda x: linalg.matrix_norm(x, 2), (torch.randn(2, 3, 2),)),
    "inverse_of_factor": (torch.cholesky_inverse, (linalg.cholesky(_POSITIVE),)),
}
