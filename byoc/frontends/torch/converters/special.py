"""Functions of one element that neither kernels nor Relax have, computed in loops of TVM's.

What C's library has of them is called there, as TVM itself calls ``erf``; the others are computed
in float64 by their formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan, pi, sqrt

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


SPECIAL = {
    "polygamma": polygamma,
    "special_ndtri": _by(normal_quantile),
    **{f"special_bessel_{name}": _wide_of_c(name) for name in ("j0", "j1", "y0", "y1")},
    "special_erfcx": _by(scaled_erfc),
    **dict.fromkeys(("i0", "special_modified_bessel_i0"), _by(_bessel(0, False))),
    **dict.fromkeys(("special_i1", "special_modified_bessel_i1"), _by(_bessel(1, False))),
    "special_i0e": _by(_bessel(0, True)),
    "special_i1e": _by(_bessel(1, True)),
    "erfc": _of_c("erfc"),
    "lgamma": _of_c("lgamma"),
    "digamma": _by(digamma),
    "erfinv": _by(inverse_erf),
}
