"""Signs, shifts and the bits of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tvm import relax, te, tirx

from byoc.frontends.torch.values import Graph, Value, dtype_name
from byoc.ir.dataflow import dtype_of

op = relax.op


def of_bits(g: Graph, x: Value, dtype: torch.dtype) -> relax.Expr:
    """The same bits as numbers of another dtype; of another width, more or fewer along the last
    axis, the lowest bits first."""
    tensor, name = g.tensor(x), dtype_name(dtype)
    given = getattr(torch, dtype_of(tensor))
    if torch.bool in (given, dtype):
        raise ValueError(f"the bits of {dtype_of(tensor)} as {name}; need numbers")
    if given.itemsize != dtype.itemsize:
        return _of_other_width(g, tensor, given.itemsize * 8, dtype.itemsize * 8)
    return tensor if given == dtype else reinterpreted(g, tensor, name)


def _of_other_width(g: Graph, x: relax.Expr, given: int, wanted: int) -> relax.Expr:
    """Parts of each number, or numbers of several parts."""
    dtype, shape = g.dtype, g.shape

    def part(x: te.Tensor, at: Sequence[tirx.Expr]) -> tirx.Expr:
        many = given // wanted
        bits = tirx.reinterpret(f"uint{given}", x(*at[:-1], at[-1] // many))
        by = (at[-1] % many * wanted).astype(f"uint{given}")
        return tirx.reinterpret(dtype, (bits >> by).astype(f"uint{wanted}"))

    def whole(x: te.Tensor, at: Sequence[tirx.Expr]) -> tirx.Expr:
        many, bits = wanted // given, tirx.const(0, f"uint{wanted}")
        for place in range(many):
            one = tirx.reinterpret(f"uint{given}", x(*at[:-1], at[-1] * many + place))
            bits = bits | (
                one.astype(f"uint{wanted}") << tirx.const(place * given, f"uint{wanted}")
            )
        return tirx.reinterpret(dtype, bits)

    def loops(x: te.Tensor) -> te.Tensor:
        return te.compute(
            shape, lambda *at: (part if given > wanted else whole)(x, at), name="bits"
        )

    return g.emit(g.builder.emit_te(loops, x))


def reinterpreted(g: Graph, x: relax.Expr, dtype: str) -> relax.Expr:
    """The same bits as numbers of a dtype of the same width."""

    def loops(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: tirx.reinterpret(dtype, x(*at)), name="bits")

    return g.emit(g.builder.emit_te(loops, x))


def sign_bit(g: Graph, x: Value) -> relax.Expr:
    """Whether a number is negative; of floats, -0 and NaN have signs as well."""
    tensor = g.tensor(x)
    dtype = getattr(torch, dtype_of(tensor))
    if dtype == torch.bool:
        return op.zeros(g.shape, "bool")
    if dtype.is_floating_point:
        wide = dtype == torch.float64
        tensor = g.tensor(tensor, "float64" if wide else "float32")
        tensor = reinterpreted(g, tensor, "int64" if wide else "int32")
    return op.less(tensor, g.tensor(0, dtype_of(tensor)))


def with_sign(g: Graph, x: Value, other: Value) -> relax.Expr:
    """The magnitude of ``x`` with the other number's sign, of integers as floats."""
    magnitude = g.emit(op.abs(g.tensor(x, g.dtype)))
    if isinstance(other, int | float):
        negative = bool(torch.signbit(torch.tensor(float(other))))
        return op.negative(magnitude) if negative else magnitude
    return op.where(g.emit(sign_bit(g, other)), op.negative(magnitude), magnitude)


def length(g: Graph, x: Value, other: Value) -> relax.Expr:
    """``sqrt(x^2 + other^2)``, whose squares do not overflow; infinite where one of them is."""
    a, b = (g.emit(op.abs(tensor)) for tensor in g.tensors(x, other))
    dtype = dtype_of(a)
    greater, less = g.emit(op.maximum(a, b)), g.emit(op.minimum(a, b))
    infinite = g.emit(op.logical_or(op.isinf(a), op.isinf(b)))
    odd = op.logical_or(infinite, op.equal(greater, g.tensor(0.0, dtype)))
    share = g.emit(op.divide(less, op.where(odd, g.tensor(1.0, dtype), greater)))
    made = op.sqrt(op.add(g.tensor(1.0, dtype), op.multiply(share, share)))
    return op.where(infinite, g.tensor(float("inf"), dtype), op.multiply(greater, made))


def _shift(
    apply: Callable[[relax.Expr, relax.Expr], relax.Expr], is_left: bool
) -> Callable[..., relax.Expr]:
    """A shift of integers; one by their width or more, or by less than 0, leaves their sign alone
    to the right, and 0 to the left."""

    def convert(g: Graph, x: Value, other: Value) -> relax.Expr:
        if g.results[0].dtype.is_floating_point or g.dtype == "bool":
            raise ValueError(f"a shift of {g.dtype}; need integers")
        bits = g.results[0].dtype.itemsize * 8
        if isinstance(other, int) and 0 <= other < bits:
            return apply(g.tensor(x, g.dtype), g.tensor(other, g.dtype))
        tensor, by = g.tensors(x, other)
        zero = g.tensor(0, g.dtype)
        beyond = op.logical_or(op.less(by, zero), op.greater_equal(by, g.tensor(bits, g.dtype)))
        beyond = g.emit(beyond)
        if is_left or not g.results[0].dtype.is_signed:
            return op.where(beyond, zero, apply(tensor, op.where(beyond, zero, by)))
        return apply(tensor, op.where(beyond, g.tensor(bits - 1, g.dtype), by))

    return convert


_LEFT = _shift(op.left_shift, True)
_RIGHT = _shift(op.right_shift, False)

BITS = {
    "view.dtype": of_bits,
    "signbit": sign_bit,
    "copysign": with_sign,
    "hypot": length,
    **dict.fromkeys(("bitwise_left_shift", "__lshift__"), _LEFT),
    **dict.fromkeys(("bitwise_right_shift", "__rshift__"), _RIGHT),
}
