"""Fourier transforms, and what else computes with complex numbers.

A complex tensor is one of floats whose last axis has two elements, real and imaginary part, which
PyTorch's shapes do not count. A transform of an axis is a product with a matrix, which PyTorch
computes from unit vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi
from typing import Any

import torch
from tvm import relax, tirx

from byoc.frontends.torch.converters.angles import angle_of
from byoc.frontends.torch.converters.movement import expand, part_of, reshaped
from byoc.frontends.torch.sizes import size_tensor
from byoc.frontends.torch.values import Graph, Value
from byoc.ir.dataflow import dtype_of

op = relax.op

#: Elements that an axis of real numbers may have for its transform, whose matrix is then 64 MB;
#: half as many complex ones have one as large.
MAX_REAL = 4096


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
    return op.multiply(pairs, g.tensor(torch.tensor([1.0, -1.0])))


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
        g.tensor(value)
        if g.is_complex(value)
        else g.emit(op.multiply(_beside_pairs(g, value), first))
        for value in values
    ]


def multiply(g: Graph, x: Value, other: Value) -> relax.Expr:
    """The product of complex numbers, or of complex and real ones."""
    if not (g.is_complex(x) and g.is_complex(other)):
        pairs, real = (x, other) if g.is_complex(x) else (other, x)
        return op.multiply(g.tensor(pairs), _beside_pairs(g, real))
    one, second = g.tensor(x), g.tensor(other)
    a, b = (_part(g, one, place) for place in (0, 1))
    c, d = (_part(g, second, place) for place in (0, 1))
    real = op.subtract(op.multiply(a, c), op.multiply(b, d))
    imaginary = op.add(op.multiply(a, d), op.multiply(b, c))
    return op.concat([g.emit(real), g.emit(imaginary)], -1)


def divide(g: Graph, x: Value, other: Value) -> relax.Expr:
    """Complex numbers over real ones."""
    if g.is_complex(other):
        raise ValueError("a quotient of complex numbers; need a real divisor")
    return op.divide(g.tensor(x), _beside_pairs(g, other))


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

    def transform(units: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._fft_r2c(units, [1], normalization, onesided)

    if not isinstance(tensor.ty.shape.values[last], tirx.IntImm):
        made = _open_transform(g, tensor, last, normalization, True, g.shape[last])
        return _transformed(g, made, others, normalization, True)
    size = _known(tensor, last, MAX_REAL)
    made = _along(g, tensor, last, transform(torch.eye(size, dtype=torch.float64)), False)
    return _transformed(g, made, others, normalization, True)


def complex_to_complex(
    g: Graph, x: Value, dim: Sequence[int], normalization: int, forward: bool
) -> relax.Expr:
    """The transform of complex numbers, or back."""
    pairs = g.tensor(x)
    axes = [axis % (pairs.ty.ndim - 1) for axis in dim]
    return _transformed(g, pairs, axes, normalization, forward)


def complex_to_real(
    g: Graph, x: Value, dim: Sequence[int], normalization: int, last_dim_size: int
) -> relax.Expr:
    """Back to real numbers, the last named axis last, of which half is given."""
    pairs = g.tensor(x)
    *others, last = [axis % (pairs.ty.ndim - 1) for axis in dim]
    pairs = _transformed(g, pairs, others, normalization, False)
    units = _complex_units(_known(pairs, last))
    matrix = torch.ops.aten._fft_c2r(units, [1], normalization, int(last_dim_size))
    return _along(g, pairs, last, matrix, True)


def _transformed(
    g: Graph, pairs: relax.Expr, axes: Sequence[int], normalization: int, forward: bool
) -> relax.Expr:
    for axis in axes:
        if not isinstance(extent := pairs.ty.shape.values[axis], tirx.IntImm):
            pairs = _open_transform(g, pairs, axis, normalization, forward, extent)
            continue
        units = _complex_units(_known(pairs, axis))
        matrix = torch.ops.aten._fft_c2c(units, [1], normalization, forward)
        pairs = _along(g, pairs, axis, matrix, True)
    return pairs


def _complex_units(size: int) -> torch.Tensor:
    """Unit vectors in rows: of the real part of an element, then of its imaginary part."""
    units = torch.eye(size, dtype=torch.complex128)
    return torch.stack([units, units * 1j], 1).reshape(2 * size, size)


def _known(tensor: relax.Expr, axis: int, most: int = MAX_REAL // 2) -> int:
    size = getattr(tensor.ty.shape.values[axis], "value", None)
    if size is None:
        raise ValueError("a transform of an axis of unknown extent; need a fixed one")
    if size > most:
        raise ValueError(f"a transform of an axis of {size} elements; need {most} or fewer")
    return int(size)


def _along(
    g: Graph, tensor: relax.Expr, axis: int, matrix: torch.Tensor, of_pairs: bool
) -> relax.Expr:
    """Transform an axis by a matrix whose rows are the transforms of unit vectors."""
    to_pairs = matrix.is_complex()
    rank = tensor.ty.ndim - of_pairs
    order = [*(i for i in range(rank) if i != axis), axis]
    turned = g.emit(op.permute_dims(tensor, [*order, *([rank] if of_pairs else [])]))
    outer = list(turned.ty.shape.values)[: rank - 1]
    flat = torch.view_as_real(matrix).flatten(1) if to_pairs else matrix
    rows = op.reshape(turned, [*outer, flat.shape[0]])
    made = op.matmul(rows, g.tensor(flat.to(getattr(torch, g.dtype))))
    made = g.emit(op.reshape(made, [*outer, matrix.shape[1], *([2] if to_pairs else [])]))
    back = [order.index(i) for i in range(rank)]
    return g.emit(op.permute_dims(made, [*back, *([rank] if to_pairs else [])]))


def _open_transform(
    g: Graph, tensor: relax.Expr, axis: int, normalization: int, forward: bool, count: Any
) -> relax.Expr:
    """``count`` frequencies of an axis of open extent, by a matrix that each call computes."""
    size, dtype = tensor.ty.shape.values[axis], g.dtype
    of_pairs = tensor.ty.ndim > len(g.shape) - 1
    rows = op.reshape(op.arange(0, size, 1, "int64"), [size, 1])
    columns = op.reshape(op.arange(0, count, 1, "int64"), [1, count])
    # Modulo the size, as the sine of a large number is inexact.
    turns = op.floor_mod(op.multiply(rows, columns), size_tensor(g.builder, size, "int64"))
    number = size_tensor(g.builder, size, dtype)
    angles = op.multiply(op.astype(turns, dtype), g.tensor(2 * pi if not forward else -2 * pi))
    angles = g.emit(op.divide(angles, number))
    scale = {0: None, 1: op.rsqrt(number), 2: op.divide(g.tensor(1.0), number)}[normalization]
    parts = [g.emit(f(angles)) for f in (op.cos, op.sin)]
    real, imaginary = parts if scale is None else [g.emit(op.multiply(p, scale)) for p in parts]
    rank = tensor.ty.ndim - of_pairs
    order = [*(i for i in range(rank) if i != axis), axis]
    back = [*(order.index(i) for i in range(rank)), rank]
    given = [tensor]
    if of_pairs:
        given = [op.squeeze(_part(g, tensor, place), [rank]) for place in (0, 1)]
    given = [g.emit(op.permute_dims(part, order)) for part in given]
    made = [g.emit(op.matmul(given[0], part)) for part in (real, imaginary)]
    if of_pairs:
        made[0] = g.emit(op.subtract(made[0], op.matmul(given[1], imaginary)))
        made[1] = g.emit(op.add(made[1], op.matmul(given[1], real)))
    return g.emit(op.permute_dims(g.emit(op.stack(made, rank)), back))


#: Of which operands or results are complex.
COMPLEX: dict[str, Callable[..., relax.Expr]] = {
    "_fft_r2c": real_to_complex,
    "_fft_c2c": complex_to_complex,
    "_fft_c2r": complex_to_real,
    **dict.fromkeys(("view_as_real", "view_as_complex"), as_pairs),
    **dict.fromkeys(("clone", "contiguous", "alias", "detach", "resolve_conj"), as_pairs),
    "_to_copy": from_real,
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
