"""Functions of one element that TVM's loops compute, with what is special of them."""

from __future__ import annotations

import torch

from tests.torch.case import Case

_NUMBERS = torch.cat(
    [
        torch.linspace(-9.3, 12.0, 200),
        torch.tensor([0.0, -0.0, -1.0, -3.0, 2.0, 1e-30, -1e-30, torch.inf, -torch.inf, torch.nan]),
    ]
)
_SHARES = torch.cat([torch.linspace(-1, 1, 101), torch.tensor([0.9999999, 2.0, torch.nan, 1e-20])])
_LOGARITHMS = torch.tensor(
    [
        [1.0, -5.0, 300.0, -300.0, torch.inf, 2.0],
        [-torch.inf, -torch.inf, -3.0, 1.0, torch.nan, 2.0],
        [-1e30, 4.0, -torch.inf, 3.0, 2.0, 1e-3],
    ]
)

#: Points in all directions, and where a sign or a quotient tells nothing.
_ODD = torch.tensor([0.0, -0.0, 1.0, -2.0, 1e-30, -3e38, torch.inf, -torch.inf, torch.nan])
_UP, _ACROSS = torch.cartesian_prod(_ODD, _ODD).unbind(1)

SPECIAL: dict[str, Case] = {
    "erfc": (lambda x: torch.erfc(x) * 2, (_NUMBERS,)),
    "erfc_doubles": (torch.erfc, (_NUMBERS.double(),)),
    "erfc_integers": (torch.erfc, (torch.arange(-3, 9),)),
    "erfc_halves": (torch.erfc, (_NUMBERS[:200].bfloat16(),)),
    "lgamma": (torch.lgamma, (_NUMBERS,)),
    "mvlgamma": (lambda x: torch.mvlgamma(x.abs() + 2, 2), (_NUMBERS,)),
    "angle_of_points": (torch.atan2, (_UP, _ACROSS)),
    "angle_of_rows": (torch.atan2, ((40,), (3, 40))),
    "digamma": (torch.digamma, (_NUMBERS,)),
    "digamma_doubles": (torch.digamma, (_NUMBERS[:206].double(),)),
    "erfinv": (torch.erfinv, (_SHARES,)),
    "erfcx": (torch.special.erfcx, (torch.cat([_NUMBERS, torch.linspace(20, 1e4, 50)]),)),
    "erfcx_doubles": (torch.special.erfcx, (_NUMBERS.double(),)),
    "log_ndtr": (torch.special.log_ndtr, (2 * _NUMBERS,)),
    "i0": (torch.i0, (_NUMBERS * 2,)),
    "i0_doubles": (torch.i0, (_NUMBERS.double() * 9,)),
    "i1": (torch.special.i1, (_NUMBERS * 2,)),
    "i0e": (torch.special.i0e, (torch.cat([_NUMBERS, torch.tensor([1e5, 16.99, 17.01])]),)),
    "i1e": (torch.special.i1e, (torch.cat([_NUMBERS, torch.tensor([-1e5, 16.99, 17.01])]),)),
    "i1e_doubles": (torch.special.i1e, (_NUMBERS.double() * 3,)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), (_LOGARITHMS,)),
    "logcumsumexp_down": (lambda x: x.logcumsumexp(-2), (_LOGARITHMS[1:],)),
}
