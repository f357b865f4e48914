"""Operators that are computed by others."""

from __future__ import annotations

import torch
from torch import linalg, nn, special
from torch.nn.functional import multilabel_margin_loss

from tests.torch.case import Case


class Steps(nn.Module):
    """A convolution of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4, 5))
        self.bias = nn.Parameter(torch.randn(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.conv_tbc(x, self.weight, self.bias, 1)


def _quantised(x: torch.Tensor) -> torch.Tensor:
    scale, zero = torch.tensor([0.1, 0.02, 0.5]), torch.tensor([0, 3, -1], dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(x, scale, zero, 1, -8, 7)


torch.manual_seed(12)
_X = (2, 3, 4)
#: A column that is one already, with either sign, and one of zeros.
_ODD = torch.tensor([[-2.0, 1, 3], [0, -1, 2], [0, 0, -4]])
_ZERO = torch.tensor([[0.0, 1, 3], [0, 5, 2], [0, 1, -4], [0, 2, 2]])

#: What is behind a -1 is none.
_LABELS = torch.tensor([[3, 0, -1, 1, 2], [-1, 0, 0, 0, 0], [4, 1, 2, 0, 3]])

#: A function of tensors.
TAKEN_APART: dict[str, Case] = {
    "dist": (torch.dist, (_X, _X)),
    "dist_greatest": (lambda x, y: torch.dist(x, y, torch.inf), (_X, _X)),
    "pdist": (torch.nn.functional.pdist, ((5, 4),)),
    "pdist_1": (lambda x: torch.nn.functional.pdist(x, 1.0), ((5, 4),)),
    "ldexp": (torch.ldexp, (_X, torch.tensor([3, -2, 0, 1]))),
    "ldexp_integers": (torch.ldexp, (torch.arange(4), torch.tensor([3, -2, 0, 1]))),
    "diagonal_scatter": (torch.diagonal_scatter, ((3, 4), (3,))),
    "diagonal_scatter_above": (
        lambda x, y: torch.diagonal_scatter(x, y, 2, 1, 2),
        ((2, 3, 5), (2, 3)),
    ),
    "diagonal_scatter_below": (
        lambda x, y: torch.diagonal_scatter(x, y, -1, 2, 0),
        ((4, 2, 3), (2, 2)),
    ),
    "as_strided": (lambda x: x.as_strided((2, 3, 2), (4, 5, 1), 2) * 2, ((4, 6),)),
    "as_strided_windows": (lambda x: x.as_strided((5, 4), (1, 1)) * 2, ((8,),)),
    "conv_tbc": (Steps(), ((7, 2, 4),)),
    "fake_quantised": (_quantised, (_X,)),
    "qr": (lambda x: torch.cat(linalg.qr(x)), ((2, 4, 4),)),
    "qr_tall": (lambda x: torch.cat(linalg.qr(x)), ((6, 3),)),
    "qr_wide": (lambda x: torch.cat(linalg.qr(x), 1), ((3, 6),)),
    "qr_complete": (lambda x: torch.cat(linalg.qr(x, "complete"), -1), ((2, 5, 3),)),
    "qr_odd": (lambda x: torch.cat(linalg.qr(x)), (_ODD,)),
    "qr_zero": (lambda x: torch.cat(linalg.qr(x)), (_ZERO,)),
    "margins_of_labels": (lambda x: multilabel_margin_loss(x, _LABELS), ((3, 5),)),
    "margins_of_each": (
        lambda x, y: multilabel_margin_loss(x, y, reduction="none"),
        ((3, 5), _LABELS),
    ),
    "margins_of_one": (
        lambda x: multilabel_margin_loss(x, _LABELS[0], reduction="sum"),
        ((5,),),
    ),
    "margins_that_are_labels": (
        lambda x: torch.ops.aten.multilabel_margin_loss_forward(x, _LABELS, 1)[1],
        ((3, 5),),
    ),
    "renormalised_halves": (
        lambda x: x.to(torch.bfloat16).renorm(2, 0, 1.0).float(),
        (_X,),
    ),
    "clamped_by_tensors": (lambda x, y, z: x.clamp(y, z), (_X, _X, _X)),
    "clamped_booleans": (lambda x, y: torch.clamp(x > 0, min=y > 0), (_X, _X)),
    "covariance": (torch.cov, ((4, 9),)),
    "covariance_uncorrected": (lambda x: torch.cov(x, correction=0), ((7,),)),
    "covariance_of_one": (lambda x: torch.cov(x, correction=2), ((3, 2),)),
    "correlation": (torch.corrcoef, ((4, 9),)),
    "correlation_of_one": (torch.corrcoef, ((9,),)),
    "combinations": (torch.combinations, ((5,),)),
    "combinations_again": (lambda x: torch.combinations(x, with_replacement=True), ((4,),)),
    "hermite": (lambda x: special.hermite_polynomial_h(x, 4), (_X,)),
    "hermite_of_probability": (lambda x: special.hermite_polynomial_he(x, 5), (_X,)),
    "laguerre": (lambda x: special.laguerre_polynomial_l(x, 3), (_X,)),
    "legendre": (lambda x: special.legendre_polynomial_p(x.sigmoid(), 4), (_X,)),
    "chebyshev": (lambda x: special.chebyshev_polynomial_t(x.sigmoid(), 4), (_X,)),
    "chebyshev_second": (lambda x: special.chebyshev_polynomial_u(x.sigmoid(), 3), (_X,)),
    "polynomials_of_few": (
        lambda x: sum(special.hermite_polynomial_h(x, n) for n in (-1, 0, 1)),
        (_X,),
    ),
    "exponential": (torch.matrix_exp, ((2, 4, 4),)),
    "exponential_great": (lambda x: torch.matrix_exp(3 * x), ((3, 3),)),
    "exponential_small": (lambda x: torch.matrix_exp(1e-4 * x), ((3, 3),)),
    "exponential_zero": (lambda x: torch.matrix_exp(0 * x), ((3, 3),)),
}
