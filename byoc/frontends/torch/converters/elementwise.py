"""Functions of one element, and of several tensors element by element."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan, pi

import torch
import tvm
from tvm import relax

from byoc.frontends.torch.converters.angles import arc_tangent
from byoc.frontends.torch.converters.comparison import (
    DOUBLE,
    greater,
    less,
    rectified,
    unequal,
)
from byoc.frontends.torch.converters.whole_numbers import powers
from byoc.frontends.torch.values import Graph, Value
from byoc.ir.dataflow import dtype_of

op = relax.op


def _function(apply: Callable[[relax.Expr], relax.Expr]) -> Callable[..., relax.Expr]:
    """A function of one tensor, in the result's dtype."""
    return lambda g, x: apply(g.tensor(x, g.dtype))


def _test(apply: Callable[[relax.Expr], relax.Expr]) -> Callable[..., relax.Expr]:
    """A function of one float whose results are booleans."""

    def convert(g: Graph, x: Value) -> relax.Expr:
        tensor = g.tensor(x)
        is_float = str(tensor.ty.dtype).startswith(("float", "bfloat"))
        return apply(tensor if is_float else op.astype(tensor, "float32"))

    return convert


def _rounding(apply: Callable[[relax.Expr], relax.Expr]) -> Callable[..., relax.Expr]:
    """Integers are round as they are."""
    return lambda g, x: apply(g.tensor(x)) if _is_float(g) else g.tensor(x)


def _is_float(g: Graph) -> bool:
    return g.results[0].dtype.is_floating_point


def _binary(apply: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
    """A function of two tensors in the dtype that these meet in."""
    return lambda g, x, other: apply(*g.tensors(x, other))


def _greater_or_less(
    apply: Callable[..., relax.Expr], booleans: Callable[..., relax.Expr]
) -> Callable[..., relax.Expr]:
    """The greater or the less of two; TVM has none of booleans."""
    return lambda g, x, other: (booleans if g.dtype == "bool" else apply)(*g.tensors(x, other))


def _but_nan(apply: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
    """The greater or the less of two, or the other one where one is NaN."""

    def convert(g: Graph, x: Value, other: Value) -> relax.Expr:
        a, b = g.tensors(x, other)
        chosen = apply(g, a, b)
        if not _is_float(g):
            return chosen
        return op.where(op.isnan(a), b, op.where(op.isnan(b), a, chosen))

    return convert


def sign(g: Graph, x: Value) -> relax.Expr:
    """-1, 0 or 1; of NaN 0."""
    tensor = g.tensor(x, g.dtype)
    if g.dtype == "bool":
        return tensor
    zero = g.tensor(0, g.dtype)
    above, below = op.greater(tensor, zero), op.less(tensor, zero)
    return op.subtract(op.astype(above, g.dtype), op.astype(below, g.dtype))


def round_to(g: Graph, x: Value, decimals: int) -> relax.Expr:
    """Rounded to so many decimals, or to tens and hundreds where there are fewer than none."""
    tensor, factor = g.tensor(x), g.tensor(10.0 ** abs(decimals), g.dtype)
    if not _is_float(g):
        raise ValueError(f"{g.dtype} rounded to {decimals} decimals; need floats")
    there, back = (op.multiply, op.divide) if decimals > 0 else (op.divide, op.multiply)
    return back(op.round(there(tensor, factor)), factor)


def angle(g: Graph, x: Value) -> relax.Expr:
    """The angle of real numbers: pi of those below 0, else 0."""
    tensor = g.tensor(x, g.dtype)
    zero = g.tensor(0.0, g.dtype)
    made = op.where(op.less(tensor, zero), g.tensor(pi, g.dtype), zero)
    return op.where(op.isnan(tensor), tensor, made)


def _logical(apply: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
    """A function of truth values; what is not 0 is true."""
    return lambda g, *values, **named: apply(
        *(g.tensor(value, "bool") for value in (*values, *named.values()))
    )


def _bitwise(
    integers: Callable[..., relax.Expr], booleans: Callable[..., relax.Expr]
) -> Callable[..., relax.Expr]:
    def convert(g: Graph, x: Value, other: Value | None = None) -> relax.Expr:
        operands = g.tensors(x) if other is None else g.tensors(x, other)
        return (booleans if g.dtype == "bool" else integers)(*operands)

    return convert


def bitwise_not(g: Graph, x: Value) -> relax.Expr:
    """All bits turned; of booleans, whether one is false."""
    if g.dtype == "bool":
        return op.logical_not(g.tensor(x))
    ones = g.tensor(~torch.zeros((), dtype=g.results[0].dtype))
    return op.bitwise_xor(g.tensor(x, g.dtype), ones)


def add(g: Graph, x: Value, other: Value, alpha: Value = 1) -> relax.Expr:
    """``x + alpha other``; of booleans, whether one is true."""
    if g.dtype == "bool":
        return op.logical_or(*g.tensors(x, other))
    return op.add(g.tensor(x, g.dtype), _times(g, other, alpha))


def subtract(g: Graph, x: Value, other: Value, alpha: Value = 1) -> relax.Expr:
    """``x - alpha other``."""
    return op.subtract(g.tensor(x, g.dtype), _times(g, other, alpha))


def reverse_subtract(g: Graph, x: Value, other: Value, alpha: Value = 1) -> relax.Expr:
    """``other - alpha x``."""
    return op.subtract(g.tensor(other, g.dtype), _times(g, x, alpha))


def _times(g: Graph, value: Value, factor: Value) -> relax.Expr:
    tensor = g.tensor(value, g.dtype)
    return tensor if factor == 1 else op.multiply(tensor, g.tensor(factor, g.dtype))


def multiply(g: Graph, x: Value, other: Value) -> relax.Expr:
    """``x other``; of booleans, whether both are true."""
    a, b = g.tensor(x, g.dtype), g.tensor(other, g.dtype)
    return (op.logical_and if g.dtype == "bool" else op.multiply)(a, b)


def divide(g: Graph, x: Value, other: Value, rounding_mode: str | None = None) -> relax.Expr:
    """The quotient, of integers as floats, or rounded down or towards zero."""
    if rounding_mode is None:
        return op.divide(g.tensor(x, g.dtype), g.tensor(other, g.dtype))
    a, b = g.tensors(x, other)
    if rounding_mode == "floor":
        return _floor_divide(g, a, b)
    return op.trunc(op.divide(a, b)) if _is_float(g) else op.divide(a, b)


def floor_divide(g: Graph, x: Value, other: Value) -> relax.Expr:
    """The quotient rounded down."""
    return _floor_divide(g, *g.tensors(x, other))


def _floor_divide(g: Graph, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Of floats, all but what is left over is divided, as PyTorch does: 1 // 0.1 is 9.

    By 0 a quotient is infinite, and the remainder NaN.
    """
    if not _is_float(g):
        return op.floor_divide(a, b)
    left, is_other = _left(g, a, b)
    below = op.astype(is_other, dtype_of(a))
    whole = op.subtract(op.round(op.divide(op.subtract(a, left), b)), below)
    if isinstance(b, tvm.ir.GenericConst) and (b.value.numpy() != 0).all():
        return whole
    return op.where(op.equal(b, g.tensor(0.0, dtype_of(b))), op.divide(a, b), whole)


def remainder(g: Graph, x: Value, other: Value) -> relax.Expr:
    """What division leaves, with the divisor's sign."""
    a, b = g.tensors(x, other)
    if not _is_float(g):
        return op.floor_mod(a, b)
    left, is_other = _left(g, a, b)
    return op.where(is_other, op.add(left, b), left)


def _left(g: Graph, a: relax.Expr, b: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    """What division rounded towards zero leaves, and whether its sign is not the divisor's."""
    left = g.emit(op.mod(a, b))
    return left, g.emit(op.less(op.multiply(op.sign(left), b), g.tensor(0.0, dtype_of(a))))


def power(g: Graph, x: Value, exponent: Value) -> relax.Expr:
    """``x ** exponent``; small whole exponents are products."""
    if isinstance(exponent, int | float) and exponent in (1, 2, 3, 4):
        return _products(g, g.tensor(x, g.dtype), int(exponent))
    if not _is_float(g):
        if not isinstance(exponent, int) or exponent < 0:
            return powers(g, x, exponent)
        base = g.tensor(x, g.dtype)
        if exponent == 0:
            return op.full(g.shape, g.tensor(1, g.dtype), g.dtype)
        return _products(g, base, exponent)
    if exponent == 0.5:
        return op.sqrt(g.tensor(x, g.dtype))
    if exponent == -0.5:
        return op.rsqrt(g.tensor(x, g.dtype))
    return op.power(*g.tensors(x, exponent))


def _products(g: Graph, base: relax.Expr, exponent: int) -> relax.Expr:
    """A whole power of 1 or more: squares of squares."""
    made, square = None, base
    while True:
        if exponent % 2:
            made = square if made is None else op.multiply(made, square)
        exponent //= 2
        if not exponent:
            return made
        square = g.emit(op.multiply(square, square))


def where(g: Graph, condition: Value, x: Value, other: Value) -> relax.Expr:
    """``x`` where the condition holds, else ``other``."""
    return op.where(g.tensor(condition, "bool"), g.tensor(x, g.dtype), g.tensor(other, g.dtype))


def masked_fill(g: Graph, x: Value, mask: Value, value: Value) -> relax.Expr:
    """The value where the mask is true, else ``x``."""
    return op.where(g.tensor(mask, "bool"), g.tensor(value, g.dtype), g.tensor(x, g.dtype))


def clamp(g: Graph, x: Value, min: Value | None = None, max: Value | None = None) -> relax.Expr:
    """``x`` within bounds, either of which may be left out."""
    tensor = g.tensor(x, g.dtype)
    numbers = all(isinstance(b, int | float) and not isnan(b) for b in (min, max))
    if numbers and _is_float(g) and g.dtype != DOUBLE:
        return op.clip(tensor, min, max)
    if min is not None:
        bound = op.logical_or if g.dtype == "bool" else greater
        tensor = g.emit(bound(tensor, g.tensor(min, g.dtype)))
    bound = op.logical_and if g.dtype == "bool" else less
    return tensor if max is None else bound(tensor, g.tensor(max, g.dtype))


def cast(g: Graph, x: Value, **_: object) -> relax.Expr:
    """The same values in the result's dtype; device, layout and format of memory are ours."""
    return g.tensor(x, g.dtype)


def dropout(g: Graph, input: Value, p: float, train: bool) -> relax.Expr:
    """``input`` itself, unless the module is in training."""
    if train and p:
        raise ValueError("dropout of a module in training mode; call .eval() before exporting it")
    return g.tensor(input)


def native_dropout(g: Graph, input: Value, p: float, train: bool | None) -> list[relax.Expr]:
    """The same, with a mask of what was kept, which nobody may read."""
    return [dropout(g, input, p, bool(train)), None]


def expm1(g: Graph, x: Value) -> relax.Expr:
    """``exp(x) - 1``."""
    return op.subtract(op.exp(g.tensor(x, g.dtype)), g.tensor(1.0))


def reciprocal(g: Graph, x: Value) -> relax.Expr:
    """``1 / x``."""
    return op.divide(g.tensor(1.0), g.tensor(x, g.dtype))


def log1p(g: Graph, x: Value) -> relax.Expr:
    """``log(1 + x)``."""
    return op.log(op.add(g.tensor(1.0), g.tensor(x, g.dtype)))


def exp2(g: Graph, x: Value) -> relax.Expr:
    """``2 ** x``, exact for whole numbers."""
    return op.power(g.tensor(2.0), g.tensor(x, g.dtype))


#: Whole powers of 2 whose inverse is a normal number, too.
_POWERS = {"float64": 1022}


def log2(g: Graph, x: Value) -> relax.Expr:
    """The logarithm to base 2, exact for powers of 2, as levels of pyramids are told by it.

    It is that of ``x / 2 ** n``, which is near 1, and the whole number ``n``.
    """
    tensor, most = g.tensor(x, g.dtype), _POWERS.get(g.dtype, 126)
    whole = g.emit(op.round(g.emit(_logarithm(2.0)(g, tensor))))
    whole = g.emit(clamp(g, whole, -most, most))
    near = g.emit(op.multiply(tensor, op.power(g.tensor(2.0), op.negative(whole))))
    return op.add(whole, _logarithm(2.0)(g, near))


def _logarithm(base: float) -> Callable[..., relax.Expr]:
    factor = 1 / torch.log(torch.tensor(base, dtype=torch.float64)).item()
    return lambda g, x: op.multiply(op.log(g.tensor(x, g.dtype)), g.tensor(factor))


_FUNCTIONS = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh"),
    *("tan", "tanh", "exp", "log", "sqrt", "rsqrt", "sigmoid", "erf", "square"),
)

ELEMENTWISE = {
    **{name: _function(getattr(op, name)) for name in _FUNCTIONS},
    **{name: _rounding(getattr(op, name)) for name in ("ceil", "floor", "trunc")},
    **{name: _test(getattr(op, name)) for name in ("isnan", "isinf", "isfinite")},
    "round.default": _rounding(op.round),
    "round.decimals": round_to,
    "angle": angle,
    "neg": _function(op.negative),
    "sign": sign,
    "exp2": exp2,
    "expm1": expm1,
    "log1p": log1p,
    "log2": log2,
    "log10": _logarithm(10.0),
    "reciprocal": reciprocal,
    "relu": lambda g, x: rectified(g, g.tensor(x, g.dtype)),
    "silu": _function(op.nn.silu),
    "selu": _function(op.nn.selu),
    "add": add,
    "sub": subtract,
    "rsub": reverse_subtract,
    "mul": multiply,
    "div": divide,
    "floor_divide": floor_divide,
    "remainder": remainder,
    "fmod": _binary(op.mod),
    "pow": power,
    "maximum": _greater_or_less(greater, op.logical_or),
    "minimum": _greater_or_less(less, op.logical_and),
    "max.other": _greater_or_less(greater, op.logical_or),
    "min.other": _greater_or_less(less, op.logical_and),
    "fmax": _but_nan(_greater_or_less(greater, op.logical_or)),
    "fmin": _but_nan(_greater_or_less(less, op.logical_and)),
    "atan2": arc_tangent,
    "eq": _binary(op.equal),
    "ne": _binary(unequal),
    "lt": _binary(op.less),
    "le": _binary(op.less_equal),
    "gt": _binary(op.greater),
    "ge": _binary(op.greater_equal),
    "logical_and": _logical(op.logical_and),
    "logical_or": _logical(op.logical_or),
    "logical_xor": _logical(op.logical_xor),
    "logical_not": _logical(op.logical_not),
    "bitwise_and": _bitwise(op.bitwise_and, op.logical_and),
    "bitwise_or": _bitwise(op.bitwise_or, op.logical_or),
    "bitwise_xor": _bitwise(op.bitwise_xor, op.logical_xor),
    "bitwise_not": bitwise_not,
    "where.self": where,
    "where.ScalarSelf": where,
    "where.ScalarOther": where,
    "where.Scalar": where,
    "masked_fill": masked_fill,
    "clamp": clamp,
    "clamp_min": clamp,
    "clamp_max": clamp,
    **dict.fromkeys(("clone", "contiguous", "detach", "detach_", "alias"), cast),
    **dict.fromkeys(("lift_fresh_copy", "lift_fresh", "to", "type_as", "_cast_Float"), cast),
    "prims::convert_element_type": lambda g, a, **_: g.tensor(a, g.dtype),
    "dropout": dropout,
    "native_dropout": native_dropout,
}
