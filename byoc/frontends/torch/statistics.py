"""Functions that PyTorch's tracer cannot follow, as it asks for values on the way, and polynomials,
in terms of operators that have converters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    return made.squeeze()


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
    return made.squeeze()


def choices(x: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    """All choices of some elements, in order."""
    count = x.shape[0]
    if r < 2:
        return x.unsqueeze(1) if r else x[:0]
    if r == 2:
        first, second = torch.triu_indices(count, count, 0 if with_replacement else 1)
        return torch.stack([x[first], x[second]], 1)
    parts = [x[:0].reshape(-1, 1).expand(-1, r)]
    for first in range(int(count)):
        rest = choices(x[first if with_replacement else first + 1 :], r - 1, with_replacement)
        parts.append(torch.cat([x[first].expand(rest.shape[0], 1), rest], 1))
    return torch.cat(parts)


def histogram(
    x: torch.Tensor,
    bins: int | torch.Tensor = 100,
    *,
    range: Sequence[float] | None = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of weights between each two edges, the last of which counts to its part; the edges."""
    flat = x.reshape(-1, 1)
    edges = bins if isinstance(bins, torch.Tensor) else _edges(x, bins, range)
    within = (flat >= edges[:-1]) & torch.cat([flat < edges[1:-1], flat <= edges[-1:]], 1)
    counted = within.to(x.dtype)
    counted = counted if weight is None else counted * weight.reshape(-1, 1)
    made = counted.sum(0)
    if density:
        made = made / (edges[1:] - edges[:-1]) / made.sum()
    return made, edges


def _edges(x: torch.Tensor, bins: int, bounds: Sequence[float] | None) -> torch.Tensor:
    """Between two numbers, or the least and the greatest element."""
    if bounds is not None:
        low, high = bounds
        apart = 0.5 if low == high else 0.0
        return torch.linspace(low - apart, high + apart, bins + 1, dtype=x.dtype)
    low, high = x.min(), x.max()
    apart = (low == high).to(x.dtype) * 0.5
    low, high = low - apart, high + apart
    step, places = (high - low) / bins, torch.arange(bins + 1, dtype=x.dtype)
    return torch.where(places < (bins + 1) // 2, low + step * places, high - step * (bins - places))


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
    aten.combinations.default: choices,
}
COUNTS = {aten.histogram.bin_ct: histogram, aten.histogram.bins_tensor: histogram}
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
