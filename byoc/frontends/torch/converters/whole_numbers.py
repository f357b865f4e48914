"""Divisors, multiples and counts of whole numbers; neighbours and parts of floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import relax, te, tirx

from byoc.frontends.torch.values import Graph, Value

op = relax.op

#: Steps of Euclid's algorithm by bytes: as many as there are Fibonacci numbers in the range.
_STEPS = {1: 13, 2: 24, 4: 47, 8: 92}


def _both(g: Graph, x: Value, other: Value) -> list[relax.Expr]:
    return [g.emit(op.broadcast_to(tensor, g.shape)) for tensor in g.tensors(x, other)]


def _divisor(g: Graph, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Of numbers of 0 or more: the dividend is the divisor of before, till there is no rest."""
    dtype, steps = g.dtype, _STEPS[g.results[0].dtype.itemsize] + 1

    def step(now: Sequence[tirx.Expr], given: Sequence[tirx.Expr]) -> Sequence[tirx.Expr]:
        zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
        a, b = now
        rest = tirx.Select(b > zero, tirx.truncmod(a, tirx.max(b, one)), zero)
        begins = a < zero
        made = tirx.Select(begins, given[0], tirx.Select(b > zero, b, a))
        return made, tirx.Select(begins, given[1], rest)

    fold = te.comm_reducer(step, lambda *_: (tirx.const(-1, dtype), tirx.const(-1, dtype)))

    def loops(a: te.Tensor, b: te.Tensor) -> list[te.Tensor]:
        k = te.reduce_axis((0, steps), "k")
        return te.compute(a.shape, lambda *at: fold((a(*at), b(*at)), axis=k), name="divisor")

    whole = g.emit(g.builder.emit_te(loops, a, b))
    return g.emit(relax.TupleGetItem(whole, 0))


def greatest_divisor(g: Graph, x: Value, other: Value) -> relax.Expr:
    """The greatest common divisor, of 0 and a number that number."""
    a, b = (g.emit(op.abs(tensor)) for tensor in _signed(g, x, other))
    return _divisor(g, a, b)


def least_multiple(g: Graph, x: Value, other: Value) -> relax.Expr:
    """The least common multiple, 0 where one is 0."""
    a, b = (g.emit(op.abs(tensor)) for tensor in _signed(g, x, other))
    divisor = op.maximum(_divisor(g, a, b), g.tensor(1, g.dtype))
    return op.abs(op.multiply(op.floor_divide(a, g.emit(divisor)), b))  # it may wrap around


def powers(g: Graph, x: Value, exponent: Value) -> relax.Expr:
    """``x ** exponent`` of integers, which wraps around: the product of x, x^2, x^4 and so on for
    each bit that the exponent has. Below 0 it is 1 over that, rounded towards 0."""
    dtype = g.results[0].dtype
    if dtype == torch.bool:
        raise ValueError("powers of truths; need numbers")
    bits = dtype.itemsize * 8
    one, zero = g.tensor(1, g.dtype), g.tensor(0, g.dtype)
    base, wanted = g.tensor(x, g.dtype), g.emit(g.tensor(exponent, g.dtype))
    known = _wrapped(x, bits, dtype.is_signed) if isinstance(x, int) else None
    made, square, base = one, known, g.emit(base)
    step = base
    for bit in range(bits - dtype.is_signed):
        if known is not None:
            step = g.tensor(square, g.dtype)
        if square == 1:
            break
        if square == 0:  # and so are all that follow
            more = g.emit(op.greater_equal(wanted, g.tensor(1 << bit, g.dtype)))
            made = g.emit(op.where(more, zero, made))
            break
        has = g.emit(op.bitwise_and(wanted, g.tensor(1 << bit, g.dtype)))
        has = g.emit(op.not_equal(has, zero))
        made = g.emit(op.multiply(made, g.emit(op.where(has, step, one))))
        if known is None:
            step = g.emit(op.multiply(step, step))
        else:
            square = _wrapped(square * square, bits, dtype.is_signed)
    if dtype.is_signed:
        # Of 1 and -1, which every square of theirs is, the product is right below 0 as well.
        is_one = g.emit(op.equal(op.multiply(base, base), one))
        is_one = g.emit(op.logical_and(is_one, op.less_equal(op.abs(base), one)))
        below = g.emit(op.less(wanted, zero))
        made = g.emit(op.where(below, g.emit(op.where(is_one, made, zero)), made))
    return op.broadcast_to(made, g.shape)


def _wrapped(number: int, bits: int, is_signed: bool) -> int:
    number %= 1 << bits
    return number - (1 << bits) if is_signed and number >> (bits - 1) else number


def _signed(g: Graph, x: Value, other: Value) -> list[relax.Expr]:
    if not g.results[0].dtype.is_signed:
        raise ValueError(f"divisors of {g.dtype}; need signed integers")
    return _both(g, x, other)


def neighbour(g: Graph, x: Value, other: Value) -> relax.Expr:
    """The next float in the direction of the other one."""
    if g.dtype not in ("float32", "float64"):
        raise ValueError(f"neighbours of {g.dtype}; need float32 or float64")
    name = "nextafter" if g.dtype == "float64" else "nextafterf"

    def loops(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return te.compute(
            a.shape, lambda *at: tirx.call_pure_extern(g.dtype, name, a(*at), b(*at)), name="next"
        )

    return g.emit(g.builder.emit_te(loops, *_both(g, x, other)))


def mantissa_and_exponent(g: Graph, x: Value) -> list[relax.Expr]:
    """``m`` from 1/2 to 1 and ``e`` of ``x = m 2^e``; of 0, infinity and NaN these and 0."""
    if g.dtype not in ("float32", "float64"):
        raise ValueError(f"mantissas of {g.dtype}; need float32 or float64")
    end, dtype = "" if g.dtype == "float64" else "f", g.dtype

    def exponent(x: tirx.Expr) -> tirx.Expr:
        odd = tirx.any(x == tirx.const(0, dtype), tirx.isnan(x), tirx.isinf(x))
        return tirx.Select(
            odd, tirx.const(0, "int32"), tirx.call_pure_extern("int32", f"ilogb{end}", x) + 1
        )

    def exponents(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: exponent(x(*at)), name="exponents")

    def mantissas(x: te.Tensor, e: te.Tensor) -> te.Tensor:
        return te.compute(
            x.shape,
            lambda *at: tirx.call_pure_extern(dtype, f"scalbn{end}", x(*at), -e(*at)),
            name="mantissas",
        )

    tensor = g.tensor(x)
    powers = g.emit(g.builder.emit_te(exponents, tensor))
    return [g.emit(g.builder.emit_te(mantissas, tensor, powers)), powers]


def counted(g: Graph, x: Value, weights: Value | None = None, minlength: Any = 0) -> relax.Expr:
    """How often 0, 1, ... are found in a vector, ``minlength`` or more of them; or the sum of
    the weights there."""
    places = g.tensor(x, "int64")
    size = g.results[0].shape[0]
    least = g.emit(op.reshape(g.tensor(minlength - 1, "int64"), [1]))
    greatest = op.maximum(g.emit(op.max(g.emit(op.concat([places, least], 0)), [0], True)), least)
    count = g.symbols.found(size)
    whole = g.emit(op.add(g.emit(greatest), g.tensor(1, "int64")))
    shape = g.emit(op.tensor_to_shape(whole))
    g.builder.match_cast(shape, relax.ShapeType([count]))
    nothing = g.emit(op.zeros([count], g.dtype))
    zero = g.tensor(0, "int64")
    added = g.tensor(1, g.dtype) if weights is None else g.tensor(weights, g.dtype)
    # PyTorch refuses numbers below 0, which are counted nowhere.
    added = op.where(op.less(places, zero), g.tensor(0, g.dtype), added)
    places = g.emit(op.maximum(places, zero))
    return op.scatter_elements(nothing, places, g.emit(added), 0, "add")


WHOLE_NUMBERS = {
    "gcd": greatest_divisor,
    "lcm": least_multiple,
    "nextafter": neighbour,
    "frexp.Tensor": mantissa_and_exponent,
    "bincount": counted,
}
