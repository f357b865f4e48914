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

#: Numbers of Fibonacci's, which have the longest way to a divisor, among others.
_WHOLE = torch.tensor([0, 1, -1, 12, -18, 55, 89, 120, 7540113804746346429, 4660046610375530309])

#: Where these functions are finite, their ends, and beyond.
_UP_TO_9 = torch.cat([torch.linspace(0.01, 9, 90), torch.tensor([0.0, 2.0, 88.0, -1.0, torch.nan])])

SPECIAL: dict[str, Case] = {
    "erfc": (lambda x: torch.erfc(x) * 2, (_NUMBERS,)),
    "erfc_doubles": (torch.erfc, (_NUMBERS.double(),)),
    "erfc_integers": (torch.erfc, (torch.arange(-3, 9),)),
    "erfc_halves": (torch.erfc, (_NUMBERS[:200].bfloat16(),)),
    "lgamma": (torch.lgamma, (_NUMBERS,)),
    "mvlgamma": (lambda x: torch.mvlgamma(x.abs() + 2, 2), (_NUMBERS,)),
    "angle_of_points": (torch.atan2, (_UP, _ACROSS)),
    "angle_of_rows": (torch.atan2, ((40,), (3, 40))),
    "trigamma": (lambda x: torch.polygamma(1, x).log(), (_NUMBERS[:200],)),
    "polygamma_0": (lambda x: torch.polygamma(0, x), (_NUMBERS,)),
    "quantile_of_normal": (torch.special.ndtri, ((_SHARES + 1) / 2,)),
    "quantile_of_little": (torch.special.ndtri, (torch.tensor([1e-38, 1e-20, 1e-7, -0.1, 1.1]),)),
    "quantile_doubles": (torch.special.ndtri, (torch.linspace(0, 1, 33).double(),)),
    "bessel_j0": (torch.special.bessel_j0, (_NUMBERS[:206],)),
    "bessel_j1": (torch.special.bessel_j1, (_NUMBERS[:206],)),
    "bessel_y0": (torch.special.bessel_y0, (_NUMBERS[:206],)),
    "bessel_y1": (torch.special.bessel_y1, (_NUMBERS[:206],)),
    **{
        f"bessel_{scaled}{order}": (
            getattr(torch.special, f"{scaled}modified_bessel_{order}"),
            (_UP_TO_9,),
        )
        for order in ("k0", "k1")
        for scaled in ("", "scaled_")
    },
    "bessel_k1_doubles": (torch.special.modified_bessel_k1, (_UP_TO_9.double(),)),
    "bessel_spherical": (torch.special.spherical_bessel_j0, (_NUMBERS,)),
    "neighbour": (torch.nextafter, (_UP, _ACROSS)),
    "neighbour_doubles": (torch.nextafter, (_UP.double(), _ACROSS.double())),
    "mantissa": (lambda x: torch.frexp(x)[0], (_NUMBERS,)),
    "exponent": (lambda x: torch.frexp(x)[1], (_NUMBERS[:206],)),
    "exponent_doubles": (lambda x: torch.frexp(x)[1], (_NUMBERS[:206].double(),)),
    "divisor": (torch.gcd, (_WHOLE[:, None], _WHOLE)),
    "divisor_narrow": (torch.gcd, (_WHOLE[:, None].to(torch.int8), _WHOLE.to(torch.int8))),
    "multiple": (torch.lcm, (_WHOLE[:, None].int(), _WHOLE.int())),
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
