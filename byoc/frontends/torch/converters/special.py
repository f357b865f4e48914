"""Functions of one element that neither kernels nor Relax have, computed in loops of TVM's.

What C's library has of them is called there, as TVM itself calls ``erf``; the others are computed
in float64 by their formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan, pi, sqrt

import numpy as np
from numpy.polynomial.chebyshev import cheb2poly
from tvm import relax, te, tirx

from byoc.frontends.torch.values import Graph, Value

#: A number of float64 in a loop of TVM's, and a function of one.
Number = tirx.Expr
Formula = Callable[[Number], Number]


def _each(wide: Callable[[Number, str], Number]) -> Callable[..., relax.Expr]:
    """A function of each element, in float32 or float64; halves become float32 on the way."""

    def convert(g: Graph, x: Value) -> relax.Expr:
        dtype = "float64" if g.dtype == "float64" else "float32"
        tensor = g.emit(g.tensor(x, dtype))

        def loops(x: te.Tensor) -> te.Tensor:
            return te.compute(x.shape, lambda *at: wide(x(*at), dtype), name="each")

        return g.tensor(g.emit(g.builder.emit_te(loops, tensor)), g.dtype)

    return convert


def _of_c(name: str) -> Callable[..., relax.Expr]:
    """A function of C's library, which has one with an ``f`` behind it for float32."""

    def call(x: Number, dtype: str) -> Number:
        return tirx.call_pure_extern(dtype, name if dtype == "float64" else f"{name}f", x)

    return _each(call)


def _by(formula: Formula) -> Callable[..., relax.Expr]:
    return _each(lambda x, dtype: formula(x.astype("float64")).astype(dtype))


def _number(value: float) -> Number:
    return tirx.const(value, "float64")


def _polynomial(x: Number, factors: tuple[float, ...]) -> Number:
    """By Horner's rule, from the highest power on."""
    made = _number(factors[0])
    for factor in factors[1:]:
        made = made * x + _number(factor)
    return made


#: The factors of ``1 / z^2k`` from k = 1 on in the series of digamma: Bernoulli's numbers by 2k.
_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
#: From where on the series is exact to float64.
_FAR = 8


def digamma(x: Number) -> Number:
    """The derivative of the logarithm of gamma.

    Numbers below 1/2 are mirrored there; then the recurrence leads to where the asymptotic series
    is exact. At 0 it is infinite, with the other sign, and NaN at the negative integers.
    """
    mirrored = x < 0.5
    z = tirx.Select(mirrored, 1.0 - x, x)
    steps = _number(0)
    for step in range(_FAR):
        steps = steps + 1.0 / (z + float(step))
    far = z + float(_FAR)
    series = _polynomial(1.0 / (far * far), (*reversed(_BERNOULLI), 0.0))
    made = tirx.log(far) - 0.5 / far - series - steps
    # The fraction alone, as the tangent of a large multiple of pi is inexact.
    fraction = x - tirx.trunc(x)
    made = tirx.Select(mirrored, made - _number(pi) / tirx.tan(fraction * pi), made)
    made = tirx.Select(tirx.all(x < 0.0, fraction == 0.0), _number(nan), made)
    at_zero = tirx.Select(1.0 / x > 0.0, _number(-inf), _number(inf))
    made = tirx.Select(x == 0.0, at_zero, made)
    return tirx.Select(x == _number(-inf), _number(nan), made)


#: The factors of ``1 / z^2k`` from k = 0 on in the series of trigamma less ``1 / 2z^2``.
_TRIGAMMA = (1.0, 1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def trigamma(x: Number) -> Number:
    """The derivative of digamma, by the same steps; infinite at 0 and the negative integers."""
    mirrored = x < 0.5
    z = tirx.Select(mirrored, 1.0 - x, x)
    steps = _number(0)
    for step in range(_FAR):
        steps = steps + 1.0 / ((z + float(step)) * (z + float(step)))
    far = z + float(_FAR)
    inverse = 1.0 / (far * far)
    made = _polynomial(inverse, tuple(reversed(_TRIGAMMA))) / far + inverse / 2.0 + steps
    fraction = x - tirx.trunc(x)
    sine = tirx.sin(fraction * pi)
    made = tirx.Select(mirrored, (pi * pi) / (sine * sine) - made, made)
    made = tirx.Select(tirx.isinf(x), tirx.Select(x > 0.0, _number(0), _number(nan)), made)
    return tirx.Select(tirx.all(x <= 0.0, fraction == 0.0), _number(inf), made)


def polygamma(g: Graph, n: int, x: Value) -> relax.Expr:
    """Digamma or trigamma."""
    if n not in (0, 1):
        raise ValueError(f"polygamma of order {n}; need 0 or 1")
    return _by((digamma, trigamma)[n])(g, x)


def normal_quantile(p: Number) -> Number:
    """Where the normal distribution has a share of ``p`` below: an approximation (Abramowitz and
    Stegun, 26.2.23), and four steps of Newton's method by logarithms."""
    share = tirx.min(p, 1.0 - p)
    t = tirx.sqrt(-2.0 * tirx.log(share))
    above = _polynomial(t, (0.010328, 0.802853, 2.515517))
    z = t - above / _polynomial(t, (0.001308, 0.189269, 1.432788, 1.0))
    for _ in range(4):
        tail = 0.5 * tirx.call_pure_extern("float64", "erfc", z * sqrt(0.5))
        slope = tirx.exp(-0.5 * z * z) / sqrt(2 * pi)
        z = z + tirx.log(tail / share) * tail / slope
    made = tirx.Select(p < 0.5, -z, z)
    made = tirx.Select(p == 0.5, _number(0), made)
    made = tirx.Select(share == 0.0, tirx.Select(p < 0.5, _number(-inf), _number(inf)), made)
    return tirx.Select(tirx.any(tirx.isnan(p), share < 0.0), _number(nan), made)


def _wide_of_c(name: str) -> Callable[..., relax.Expr]:
    """A function of C's library for float64."""
    return _by(lambda x: tirx.call_pure_extern("float64", name, x))


#: M. Giles, "Approximating the erfinv function" (2010): polynomials in ``w - 2.5`` where w, which
#: is ``-log(1 - x^2)``, is below 5, and in ``sqrt(w) - 3`` beyond.
_NEAR_ZERO = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_NEAR_ONE = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


def inverse_erf(x: Number) -> Number:
    """What ``erf`` gives ``x`` of: an approximation, and two steps of Newton's method."""
    w = -tirx.log((1.0 - x) * (1.0 + x))
    near = _polynomial(w - 2.5, _NEAR_ZERO)
    made = x * tirx.Select(w < 5.0, near, _polynomial(tirx.sqrt(w) - 3.0, _NEAR_ONE))
    for _ in range(2):
        slope = _number(2 / sqrt(pi)) * tirx.exp(-(made * made))
        made = made - (tirx.erf(made) - x) / slope
    ends = tirx.Select(x > 0.0, _number(inf), _number(-inf))
    return tirx.Select(tirx.abs(x) == 1.0, ends, made)


#: From where on the asymptotic series of these functions are exact to float64.
_FAR_ERFCX, _FAR_BESSEL = 25.0, 17.0
_BESSEL_TERMS, _BESSEL_FAR_TERMS = 60, 24


def scaled_erfc(x: Number) -> Number:
    """``exp(x^2) erfc(x)``, which stays when its factors leave the range of numbers."""
    inner = tirx.min(x, _number(_FAR_ERFCX))
    near = tirx.exp(inner * inner) * tirx.call_pure_extern("float64", "erfc", inner)
    part = 0.5 / (x * x)
    far = _polynomial(part, (105.0, -15.0, 3.0, -1.0, 1.0)) / (x * sqrt(pi))
    return tirx.Select(tirx.isnan(x), x, tirx.Select(x > _FAR_ERFCX, far, near))


def _bessel(order: int, is_scaled: bool) -> Formula:
    """The modified Bessel function of the first kind, times ``exp(-|x|)`` where it is scaled.

    Its power series has no negative terms; far away the asymptotic one has small ones.
    """
    near_terms, far_terms = [1.0], [1.0]
    for k in range(1, _BESSEL_TERMS):
        near_terms.append(near_terms[-1] / (k * (k + order)))
    for k in range(1, _BESSEL_FAR_TERMS):
        far_terms.append(-far_terms[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))

    def function(x: Number) -> Number:
        size = tirx.abs(x)
        inner = tirx.min(size, _number(_FAR_BESSEL))
        near = _polynomial(inner * inner / 4.0, tuple(reversed(near_terms)))
        near = near * inner / 2.0 if order else near
        outer = tirx.max(size, _number(_FAR_BESSEL))
        far = _polynomial(1.0 / outer, tuple(reversed(far_terms))) / tirx.sqrt(outer * (2 * pi))
        if is_scaled:
            made = tirx.Select(size > _FAR_BESSEL, far, near * tirx.exp(-inner))
        else:
            half = tirx.exp(outer * 0.5)  # the whole may be too large where the product is not
            made = tirx.Select(size > _FAR_BESSEL, far * half * half, near)
        made = tirx.Select(tirx.isnan(x), x, made)
        return tirx.Select(x < 0.0, -made, made) if order else made

    return function


#: Chebyshev's coefficients of the modified Bessel functions of the second kind (Cephes), of orders
#: 0 and 1: up to ``_SECOND_FAR`` in ``x^2 - 2``, and beyond it in ``8 / x - 2``.
_SECOND_FAR = 2.0
_K0_NEAR = (
    *(1.374465435613523e-16, 4.25981614279661e-14, 1.0349695257633842e-11),
    *(1.904516377220209e-09, 2.5347910790261494e-07, 2.286212103119452e-05),
    *(0.001264615411446926, 0.0359799365153615, 0.3442898999246285),
    *(-0.5353273932339028,),
)
_K0_FAR = (
    *(5.300433772686263e-18, -1.6475804301524212e-17, 5.2103915050390274e-17),
    *(-1.678231096805412e-16, 5.512055978524319e-16, -1.848593377343779e-15),
    *(6.3400764774050706e-15, -2.2275133269916698e-14, 8.032890775363575e-14),
    *(-2.9800969231727303e-13, 1.140340588208475e-12, -4.514597883373944e-12),
    *(1.8559491149547177e-11, -7.957489244477107e-11, 3.577397281400301e-10),
    *(-1.69753450938906e-09, 8.574034017414225e-09, -4.660489897687948e-08),
    *(2.766813639445015e-07, -1.8317555227191195e-06, 1.39498137188765e-05),
    *(-0.00012849549581627802, 0.0015698838857300533, -0.0314481013119645),
    *(2.4403030820659555,),
)
_K1_NEAR = (
    *(-7.023863479386288e-18, -2.427449850519366e-15, -6.666901694199329e-13),
    *(-1.4114883926335278e-10, -2.213387630734726e-08, -2.4334061415659684e-06),
    *(-0.0001730288957513052, -0.006975723859639864, -0.12261118082265715),
    *(-0.3531559607765449, 1.5253002273389478),
)
_K1_FAR = (
    *(-5.756744483665017e-18, 1.7940508731475592e-17, -5.689462558442859e-17),
    *(1.838093544366639e-16, -6.057047248373319e-16, 2.038703165624334e-15),
    *(-7.019837090418314e-15, 2.4771544244813043e-14, -8.976705182324994e-14),
    *(3.3484196660784293e-13, -1.2891739609510289e-12, 5.13963967348173e-12),
    *(-2.1299678384275683e-11, 9.218315187605006e-11, -4.1903547593418965e-10),
    *(2.015049755197033e-09, -1.0345762465678097e-08, 5.7410841254500495e-08),
    *(-3.5019606030878126e-07, 2.406484947837217e-06, -1.936197974166083e-05),
    *(0.00019521551847135162, -0.002857816859622779, 0.10392373657681724),
    *(2.7206261904844427,),
)


def _chebyshev(x: Number, factors: tuple[float, ...]) -> Number:
    """A series of Chebyshev's polynomials of ``x / 2``, the highest first and half of the last, as
    one polynomial: a loop holds each number as often as its formula names it."""
    whole = np.array(factors[::-1])
    whole[0] /= 2
    return _polynomial(x * 0.5, tuple(map(float, cheb2poly(whole)[::-1])))


def _second_kind(order: int, is_scaled: bool) -> Formula:
    """Infinite at 0, NaN below; times ``exp(x)`` where it is scaled."""
    near_factors, far_factors = ((_K0_NEAR, _K0_FAR), (_K1_NEAR, _K1_FAR))[order]
    first_kind = _bessel(order, False)

    def function(x: Number) -> Number:
        inner = tirx.max(tirx.min(x, _number(_SECOND_FAR)), _number(0.0))
        series = _chebyshev(inner * inner - 2.0, near_factors)
        product = tirx.log(inner * 0.5) * first_kind(inner)
        near = product + series / inner if order else series - product
        outer = tirx.max(x, _number(_SECOND_FAR))
        far = _chebyshev(8.0 / outer - 2.0, far_factors) / tirx.sqrt(outer)
        if is_scaled:
            near = near * tirx.exp(inner)
        else:
            far = far * tirx.exp(-outer)
        made = tirx.Select(x > _SECOND_FAR, far, near)
        made = tirx.Select(x == 0.0, _number(inf), made)
        return tirx.Select(tirx.any(x < 0.0, tirx.isnan(x)), _number(nan), made)

    return function


def spherical_bessel(x: Number) -> Number:
    """``sin(x) / x``, which is 1 at 0 and 0 at the ends."""
    safe = tirx.Select(tirx.any(x == 0.0, tirx.isinf(x)), _number(1.0), x)
    made = tirx.Select(x == 0.0, _number(1.0), tirx.sin(safe) / safe)
    return tirx.Select(tirx.isinf(x), _number(0.0), made)


SPECIAL = {
    "polygamma": polygamma,
    "special_ndtri": _by(normal_quantile),
    **{f"special_bessel_{name}": _wide_of_c(name) for name in ("j0", "j1", "y0", "y1")},
    "special_erfcx": _by(scaled_erfc),
    **dict.fromkeys(("i0", "special_modified_bessel_i0"), _by(_bessel(0, False))),
    **dict.fromkeys(("special_i1", "special_modified_bessel_i1"), _by(_bessel(1, False))),
    "special_i0e": _by(_bessel(0, True)),
    "special_i1e": _by(_bessel(1, True)),
    **{
        f"special_{scaled}modified_bessel_k{order}": _by(_second_kind(order, bool(scaled)))
        for order in (0, 1)
        for scaled in ("", "scaled_")
    },
    "special_spherical_bessel_j0": _by(spherical_bessel),
    "erfc": _of_c("erfc"),
    "lgamma": _of_c("lgamma"),
    "digamma": _by(digamma),
    "erfinv": _by(inverse_erf),
}
