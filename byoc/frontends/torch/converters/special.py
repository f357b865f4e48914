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


SPECIAL = {
    "erfc": _of_c("erfc"),
    "lgamma": _of_c("lgamma"),
    "digamma": _by(digamma),
    "erfinv": _by(inverse_erf),
}
