"""Fourier transforms, and what else computes with complex numbers.

A complex tensor is one of floats whose last axis has two elements, real and imaginary part, which
PyTorch's shapes do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tvm import relax

from byoc.frontends.torch.converters.angles import angle_of
from byoc.frontends.torch.converters.movement import expand, part_of, reshaped
from byoc.frontends.torch.values import Graph, Value
from byoc.ir.dataflow import dtype_of
from byoc.ir.fourier import Form, transform
from codegen_cc.operators.fourier import COMPLEX_NUMBERS, HALF, REAL_NUMBERS

op = relax.op


def as_pairs(g: Graph, x: Value, **_: object) -> relax.Expr:
    """The tensor itself, whose axis of two is there."""
    return g.tensor(x)


def from_real(g: Graph, x: Value, **_: object) -> relax.Expr:
    """Complex numbers of real ones, whose imaginary parts are 0; complex ones as they are."""
    tensor = g.tensor(x)
    if tensor.ty.ndim == len(g.shape):
        return tensor
    real = g.emit(op.expand_dims(g.tensor(x, g.dtype), -1))
    nothing = op.broadcast_to(g.tensor(0.0, dtype_of(real)), list(real.ty.shape.values))
    return op.concat([real, g.emit(nothing)], -1)


def filled(number: complex) -> Callable[..., relax.Expr]:
    """A number everywhere."""

    def convert(g: Graph, *_: object, **__: object) -> relax.Expr:
        parts = g.tensor(torch.tensor([number.real, number.imag]), g.dtype)
        return op.broadcast_to(parts, g.shape)

    return convert


def full_like(g: Graph, x: Value, fill_value: complex, **_: object) -> relax.Expr:
    """One number everywhere, in the shape of others."""
    return filled(complex(fill_value))(g, x)


def polar(g: Graph, abs: Value, angle: Value) -> relax.Expr:
    """Complex numbers of magnitudes and angles."""
    length, turn = g.tensor(abs), g.tensor(angle)
    parts = [op.multiply(length, f(turn)) for f in (op.cos, op.sin)]
    return op.concat([g.emit(op.expand_dims(part, -1)) for part in parts], -1)


def complex_of(g: Graph, real: Value, imag: Value) -> relax.Expr:
    """Complex numbers of their parts."""
    shape = g.shape[:-1]
    parts = [g.emit(op.broadcast_to(g.tensor(part), shape)) for part in (real, imag)]
    return op.concat([g.emit(op.expand_dims(part, -1)) for part in parts], -1)


def _part(g: Graph, pairs: relax.Expr, place: int) -> relax.Expr:
    """Real or imaginary parts, with their axis."""
    return g.emit(part_of(pairs, pairs.ty.ndim - 1, place, place + 1))


def magnitude(g: Graph, x: Value) -> relax.Expr:
    """``sqrt(re^2 + im^2)``."""
    pairs = g.tensor(x)
    return op.sqrt(op.sum(op.multiply(pairs, pairs), [-1]))


def angle(g: Graph, x: Value) -> relax.Expr:
    """The angle of each, from -pi to pi."""
    pairs = g.tensor(x)
    last = pairs.ty.ndim - 1
    real, imaginary = (g.emit(op.take(pairs, g.tensor(i, "int64"), last)) for i in range(2))
    return angle_of(g, imaginary, real) if g.dtype == "float32" else op.atan2(imaginary, real)


def conjugate(g: Graph, x: Value) -> relax.Expr:
    """The imaginary part negated."""
    pairs = g.tensor(x)
    return op.multiply(pairs, g.tensor(torch.tensor([1.0, -1.0]), dtype_of(pairs)))


def negative(g: Graph, x: Value) -> relax.Expr:
    """Both parts negated."""
    return op.negative(g.tensor(x))


def add(g: Graph, x: Value, other: Value, alpha: Value = 1) -> relax.Expr:
    """``x + alpha other`` of complex numbers."""
    one, second = _both_complex(g, x, other)
    return op.add(one, second if alpha == 1 else op.multiply(second, g.tensor(float(alpha))))


def subtract(g: Graph, x: Value, other: Value, alpha: Value = 1) -> relax.Expr:
    """``x - alpha other`` of complex numbers."""
    one, second = _both_complex(g, x, other)
    return op.subtract(one, second if alpha == 1 else op.multiply(second, g.tensor(float(alpha))))


def _both_complex(g: Graph, *values: Value) -> list[relax.Expr]:
    """Pairs, of real numbers with 0 for the imaginary parts."""
    first = g.tensor(torch.tensor([1.0, 0.0]), g.dtype)
    return [
        g.tensor(value, g.dtype)
        if g.is_complex(value)
        else g.emit(op.multiply(_beside_pairs(g, value), first))
        for value in values
    ]


def multiply(g: Graph, x: Value, other: Value) -> relax.Expr:
    """The product of complex numbers, or of complex and real ones."""
    if not (g.is_complex(x) and g.is_complex(other)):
        pairs, real = (x, other) if g.is_complex(x) else (other, x)
        return op.multiply(g.tensor(pairs, g.dtype), _beside_pairs(g, real))
    one, second = g.tensor(x, g.dtype), g.tensor(other, g.dtype)
    a, b = (_part(g, one, place) for place in (0, 1))
    c, d = (_part(g, second, place) for place in (0, 1))
    real = op.subtract(op.multiply(a, c), op.multiply(b, d))
    imaginary = op.add(op.multiply(a, d), op.multiply(b, c))
    return op.concat([g.emit(real), g.emit(imaginary)], -1)


def divide(g: Graph, x: Value, other: Value) -> relax.Expr:
    """Complex numbers over real ones."""
    if g.is_complex(other):
        raise ValueError("a quotient of complex numbers; need a real divisor")
    return op.divide(g.tensor(x, g.dtype), _beside_pairs(g, other))


def _beside_pairs(g: Graph, real: Value) -> relax.Expr:
    """Real numbers with an axis for the parts; a number as it is."""
    if isinstance(real, int | float):
        return g.tensor(float(real))
    return g.emit(op.expand_dims(g.tensor(real, g.dtype), -1))


# ---------------------------------------------------------------------- movement


def permute(g: Graph, x: Value, dims: Sequence[int]) -> relax.Expr:
    """The axes in another order."""
    pairs = g.tensor(x)
    rank = pairs.ty.ndim - 1
    return op.permute_dims(pairs, [*(axis % rank for axis in dims), rank])


def transpose(g: Graph, x: Value, dim0: int, dim1: int) -> relax.Expr:
    """Two axes in each other's place."""
    order = list(range(g.tensor(x).ty.ndim - 1))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return permute(g, x, order)


def concatenate(g: Graph, tensors: Sequence[Value], dim: int = 0) -> relax.Expr:
    """Tensors one behind the other."""
    parts = [g.tensor(value) for value in tensors]
    return op.concat(parts, dim % (parts[0].ty.ndim - 1))


# ---------------------------------------------------------------------- transforms


def real_to_complex(
    g: Graph, x: Value, dim: Sequence[int], normalization: int, onesided: bool
) -> relax.Expr:
    """The transform of real numbers, the last named axis first, of which half may be left out."""
    tensor = g.tensor(x)
    *others, last = [axis % tensor.ty.ndim for axis in dim]
    form = Form(REAL_NUMBERS, last, norm=normalization, onesided=onesided)
    made = transform(g.emit, tensor, form, tensor.ty.shape.values[last])
    return _transformed(g, made, others, normalization, True)


def complex_to_complex(
    g: Graph, x: Value, dim: Sequence[int], normalization: int, forward: bool
) -> relax.Expr:
    """The transform of complex numbers, or back."""
    pairs = g.tensor(x)
    axes = [axis % (pairs.ty.ndim - 1) for axis in dim]
    return _transformed(g, pairs, axes, normalization, forward)


def complex_to_real(
    g: Graph, x: Value, dim: Sequence[int], normalization: int, last_dim_size: Value
) -> relax.Expr:
    """Back to real numbers, the last named axis last, of which half is given."""
    pairs = g.tensor(x)
    *others, last = [axis % (pairs.ty.ndim - 1) for axis in dim]
    pairs = _transformed(g, pairs, others, normalization, False)
    form = Form(HALF, last, inverse=True, norm=normalization)
    return transform(g.emit, pairs, form, g.shape[last])


def short_time(
    g: Graph,
    x: Value,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Value | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> relax.Expr:
    """Transforms of frames, [.., frequencies, frames], which are read where they lie."""
    if align_to_window:
        raise ValueError("frames that are aligned to the window; need align_to_window=False")
    if window is not None and g.is_complex(window):
        raise ValueError("a window of complex numbers; need real ones")
    tensor, is_complex = g.tensor(x, g.dtype), g.is_complex(x)
    single = tensor.ty.ndim - is_complex == 1
    if single:
        tensor = g.emit(op.expand_dims(tensor, 0))
    if onesided is None:
        onesided = not is_complex
    kind, step = COMPLEX_NUMBERS if is_complex else REAL_NUMBERS, hop_length or n_fft // 4
    form = Form(kind, 1, norm=int(normalized), onesided=onesided, step=step)
    made = transform(g.emit, tensor, form, n_fft, _window(g, n_fft, win_length or n_fft, window))
    made = g.emit(op.permute_dims(made, [0, 2, 1, 3]))
    return op.squeeze(made, [0]) if single else made


def _window(g: Graph, size: int, length: int, window: Value | None) -> relax.Expr | None:
    """A window in the middle of a frame of this size, zeros around; None where all count alike."""
    if window is None and length == size:
        return None
    given = torch.ones(length) if window is None else window
    before = (size - length) // 2
    tensor = g.tensor(given, g.dtype)
    return op.nn.pad(tensor, [before, size - length - before]) if length < size else tensor


def _transformed(
    g: Graph, pairs: relax.Expr, axes: Sequence[int], normalization: int, forward: bool
) -> relax.Expr:
    for axis in axes:
        form = Form(COMPLEX_NUMBERS, axis, not forward, normalization)
        pairs = transform(g.emit, pairs, form, pairs.ty.shape.values[axis])
    return pairs


#: Of which operands or results are complex.
COMPLEX: dict[str, Callable[..., relax.Expr]] = {
    "_fft_r2c": real_to_complex,
    "_fft_c2c": complex_to_complex,
    "_fft_c2r": complex_to_real,
    "stft.default": short_time,
    **dict.fromkeys(("view_as_real", "view_as_complex"), as_pairs),
    **dict.fromkeys(("clone", "contiguous", "alias", "detach", "resolve_conj"), as_pairs),
    "_to_copy": from_real,
    **dict.fromkeys(("zeros_like", "new_zeros", "empty_like", "new_empty"), filled(0)),
    **dict.fromkeys(("ones_like", "new_ones"), filled(1)),
    "full_like": full_like,
    "polar": polar,
    "complex": complex_of,
    "abs": magnitude,
    "angle": angle,
    **dict.fromkeys(("_conj", "_conj_physical", "conj_physical"), conjugate),
    "neg": negative,
    "add.Tensor": add,
    "sub.Tensor": subtract,
    "mul.Tensor": multiply,
    "div.Tensor": divide,
    "permute": permute,
    "transpose.int": transpose,
    "cat": concatenate,
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze"), reshaped),
    "expand": expand,
}
