"""Functions that PyTorch's tracer cannot follow, as it asks for values on the way, and polynomials,
in terms of operators that have converters."""

from __future__ import annotations

from collections.abc import Callable

import torch


def covariance(
    x: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Of variables in rows."""
    if fweights is not None or aweights is not None:
        raise ValueError("a covariance of weighted elements; need none that are weighted")
    apart, share = _apart(x, correction)
    made = apart @ apart.mT * share
    return made.reshape([]) if x.dim() < 2 else made


def _apart(x: torch.Tensor, correction: int = 1) -> tuple[torch.Tensor, float]:
    """How far elements are from the mean of their row, and one over their number."""
    rows = x.reshape(1, -1) if x.dim() < 2 else x
    count = rows.shape[1] - correction
    if isinstance(count, int):
        count = max(count, 0)
        return rows - rows.mean(1, keepdim=True), 1 / count if count else float("inf")
    return rows - rows.mean(1, keepdim=True), 1 / count


def correlation(x: torch.Tensor) -> torch.Tensor:
    """The same of variables that vary by 1."""
    apart, share = _apart(x)
    made = apart @ apart.mT * share
    deviation = (apart.square().sum(1) * share).sqrt()
    made = (made / deviation.unsqueeze(-1) / deviation).clamp(-1, 1)
    return made.reshape([]) if x.dim() < 2 else made


def pairs(x: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    """All choices of two elements, in order."""
    if r != 2:
        raise ValueError(f"combinations of {r} elements; need 2")
    count = int(x.shape[0])
    first, second = torch.triu_indices(count, count, 0 if with_replacement else 1)
    return torch.stack([x[first], x[second]], 1)


#: The next polynomial of two before: of ``x``, the number of the last, it, and that before.
_Next = Callable[[torch.Tensor, int, torch.Tensor, torch.Tensor], torch.Tensor]


def _polynomial(
    first: Callable[[torch.Tensor], torch.Tensor], following: _Next
) -> Callable[[torch.Tensor, float], torch.Tensor]:
    def made(x: torch.Tensor, n: float) -> torch.Tensor:
        degree = int(n)
        if not x.dtype.is_floating_point:
            x = x.float()
        if degree < 0:
            return torch.zeros_like(x)
        before, last = torch.ones_like(x), first(x)
        for k in range(1, degree):
            before, last = last, following(x, k, last, before)
        return last if degree else before

    return made


aten = torch.ops.aten
TRACED_OTHERWISE = {
    aten.cov.default: covariance,
    aten.corrcoef.default: correlation,
    aten.combinations.default: pairs,
}
POLYNOMIALS = {
    aten.special_chebyshev_polynomial_t.n_scalar: _polynomial(
        lambda x: x, lambda x, k, p, q: 2 * x * p - q
    ),
    aten.special_chebyshev_polynomial_u.n_scalar: _polynomial(
        lambda x: 2 * x, lambda x, k, p, q: 2 * x * p - q
    ),
    aten.special_hermite_polynomial_h.n_scalar: _polynomial(
        lambda x: 2 * x, lambda x, k, p, q: 2 * x * p - 2 * k * q
    ),
    aten.special_hermite_polynomial_he.n_scalar: _polynomial(
        lambda x: x, lambda x, k, p, q: x * p - k * q
    ),
    aten.special_laguerre_polynomial_l.n_scalar: _polynomial(
        lambda x: 1 - x, lambda x, k, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)
    ),
    aten.special_legendre_polynomial_p.n_scalar: _polynomial(
        lambda x: x, lambda x, k, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)
    ),
}
