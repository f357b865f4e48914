"""Eigenvalues and singular values by rotations, beside LAPACK's in float64."""

from __future__ import annotations

import pytest
import torch

from byoc.frontends.torch.jacobi import MOST_ROWS, eigen, singular


def _error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e15])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, MOST_ROWS])
def test_eigen(rows: int, scale: float) -> None:
    torch.manual_seed(1)
    drawn = torch.randn(3, rows, rows) * scale
    matrix = drawn + drawn.mT
    values, vectors = eigen(matrix)
    assert _error(values, torch.linalg.eigvalsh(matrix.double())) < 1e-5
    assert _error(vectors * values[..., None, :] @ vectors.mT, matrix) < 3e-5
    assert _error(vectors @ vectors.mT, torch.eye(rows).expand(matrix.shape)) < 3e-5
    assert torch.equal(eigen(matrix.triu(), "U", False)[0], values)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (3, 3), (5, 3), (4, 7), (16, 13)])
def test_singular(shape: tuple[int, int], full: bool) -> None:
    """Also of equal rows, so that the last value is 0, and of nothing but zeros."""
    torch.manual_seed(2)
    drawn = torch.randn(4, *shape)
    drawn[1, -1], drawn[2] = drawn[1, 0], drawn[2] * 1e-20
    drawn[3] *= 0
    for matrix in drawn:
        left, values, right = singular(matrix, full)
        count = values.shape[-1]
        limit = 1e-5 * float(matrix.abs().max())
        wanted = torch.linalg.svdvals(matrix.double())
        assert float((values - wanted).abs().max()) <= 4 * limit
        made = left[:, :count] * values @ right[:count]
        assert float((made - matrix).abs().max()) <= limit
        assert _error(left.mT @ left, torch.eye(left.shape[1])) < 3e-5
        assert _error(right @ right.mT, torch.eye(right.shape[0])) < 3e-5


def test_equal_eigenvalues_turn_nothing() -> None:
    values, vectors = eigen(torch.eye(3))
    assert torch.equal(values, torch.ones(3))
    assert torch.equal(vectors, torch.eye(3))


@pytest.mark.parametrize("function", [eigen, singular])
def test_what_is_refused(function: object) -> None:
    for matrix in (torch.ones(17, 17), torch.ones(3, 3, dtype=torch.complex64), torch.ones(0, 0)):
        with pytest.raises(ValueError, match="need floats, and 1 to 16 rows"):
            function(matrix)
