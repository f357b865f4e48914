"""Operators of complex numbers in terms of their real and imaginary parts.

What moves elements moves pairs of them; sums are those of the parts; a product of matrices is one
of real matrices twice as wide. Of real numbers everything stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

#: Arguments that name axes.
_AXES = ("dim", "dims", "dim0", "dim1")
#: A function that stands for an operator; ``NotImplemented`` leaves it as it is.
Made = Callable[..., Any]

aten = torch.ops.aten


def _is_complex(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_is_complex, value))
    return isinstance(value, torch.Tensor) and value.is_complex()


def pairs(x: torch.Tensor) -> torch.Tensor:
    """Real and imaginary parts along one axis more; the parts of real numbers are these and 0."""
    if not x.is_complex():
        return torch.stack([x, torch.zeros_like(x)], -1)
    return torch.view_as_real(x.resolve_conj())


def _parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return pairs(x).unbind(-1)


def _of_parts(real: torch.Tensor, imaginary: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(torch.stack([real, imaginary], -1))


def _as_complex(made: Any) -> Any:
    if isinstance(made, list | tuple):
        return [_as_complex(part) for part in made]
    return torch.view_as_complex(made.contiguous())


def _moved(operator: torch._ops.OpOverload, *args: Any, **named: Any) -> Any:
    """The operator on pairs, whose axes are counted from the first one."""
    given: dict[str, Any] = {}
    for place, argument in enumerate(operator._schema.arguments):
        default = argument.default_value
        given[argument.name] = (
            args[place] if place < len(args) else named.get(argument.name, default)
        )
    rank = args[0].dim()
    for name, value in given.items():
        if _is_complex(value):
            given[name] = pairs(value)
        elif name in _AXES and isinstance(value, int):
            given[name] = value % max(1, rank)
        elif name in _AXES:
            axes = range(rank) if value is None or len(value) == 0 else value
            given[name] = [axis % max(1, rank) for axis in axes]
    return _as_complex(operator(**given))


def _rolled(x: torch.Tensor, shifts: list[int], dims: list[int] = ()) -> torch.Tensor:
    if not dims:
        return torch.roll(x.reshape(-1), shifts, 0).reshape(x.shape)
    return _moved(aten.roll.default, x, shifts, dims)


def _of_all(operator: torch._ops.OpOverload, x: torch.Tensor, **named: Any) -> torch.Tensor:
    """A sum or mean of all elements."""
    return _as_complex(operator(pairs(x), list(range(x.dim())), **named))


def _padded(
    x: torch.Tensor, pad: list[int], mode: str | float = "constant", value: float | None = None
) -> torch.Tensor:
    if value or mode not in ("constant", 0):
        raise ValueError(f"complex numbers padded with {value or mode}; need 0")
    return _as_complex(aten.constant_pad_nd(pairs(x), [0, 0, *pad]))


def _repeated(x: torch.Tensor, repeats: list[int]) -> torch.Tensor:
    return _as_complex(pairs(x).repeat([*repeats, 1]))


def _stacked(tensors: list[torch.Tensor], dim: int = 0) -> torch.Tensor:
    return _as_complex(torch.stack([*map(pairs, tensors)], dim % (tensors[0].dim() + 1)))


def _windows(x: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    made = pairs(x).unfold(dimension % x.dim(), size, step)  # whose elements are the last axis
    return _as_complex(made.transpose(-1, -2))


def _gathered(x: torch.Tensor, dim: int, index: torch.Tensor, **_: Any) -> torch.Tensor:
    return _of_parts(*(torch.gather(part, dim, index) for part in _parts(x)))


def _chosen(condition: torch.Tensor, x: Any, other: Any) -> torch.Tensor:
    (real, *_) = (v.dtype.to_real() for v in (x, other) if _is_complex(v))
    chosen = (
        pairs(value)
        if isinstance(value, torch.Tensor)
        else torch.stack([torch.full((), p, dtype=real) for p in _parts_of(value)])
        for value in (x, other)
    )
    return _as_complex(torch.where(condition.unsqueeze(-1), *chosen))


def _parts_of(number: complex) -> tuple[float, float]:
    return complex(number).real, complex(number).imag


def _put(
    x: torch.Tensor, indices: list[Any], values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    return _as_complex(aten.index_put(pairs(x), indices, pairs(values), accumulate))


def _length(
    x: torch.Tensor, order: Any = 2, dim: Any = None, keepdim: bool = False, **named: Any
) -> torch.Tensor:
    return torch.linalg.vector_norm(x.abs(), order, dim, keepdim, **named)


def _convolved(
    operator: torch._ops.OpOverload,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *others: Any,
) -> torch.Tensor:
    (a, b), (c, d) = _parts(x), _parts(weight)
    more = (None, None) if bias is None else _parts(bias)
    real = operator(a, c, more[0], *others) - operator(b, d, None, *others)
    return _of_parts(real, operator(a, d, more[1], *others) + operator(b, c, None, *others))


def _masked(x: torch.Tensor, mask: torch.Tensor, value: Any) -> torch.Tensor:
    is_tensor = isinstance(value, torch.Tensor)
    new = _parts(value) if is_tensor else _parts_of(value)
    return _of_parts(*(torch.where(mask, n, p) for n, p in zip(new, _parts(x), strict=True)))


def _filled(size: list[int], value: complex, **named: Any) -> Any:
    dtype = named.get("dtype")
    if dtype is None or not dtype.is_complex:
        return NotImplemented
    real = dtype.to_real()
    parts = [torch.full(size, part, dtype=real) for part in _parts_of(value)]
    return _of_parts(*parts)


def _product(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Of matrices: each row of pairs by a matrix of 2 x 2 blocks."""
    if x.dim() == 1:
        return _product(x.unsqueeze(0), other).squeeze(0 if other.dim() == 1 else -2)
    if other.dim() == 1:
        return _product(x, other.unsqueeze(-1)).squeeze(-1)
    real, imaginary = _parts(other)
    rows = [torch.stack([real, imaginary], -1), torch.stack([-imaginary, real], -1)]
    blocks = torch.stack(rows, -3).flatten(-2).flatten(-3, -2)
    made = pairs(x).flatten(-2) @ blocks
    return torch.view_as_complex(made.unflatten(-1, (other.shape[-1], 2)).contiguous())


def _added_product(
    x: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    return x * beta + _product(left, right) * alpha


def _quotient(x: torch.Tensor, other: torch.Tensor) -> Any:
    if not _is_complex(other):
        return NotImplemented
    a, b = _parts(other)
    return (x * other.conj()) / (a * a + b * b)


def _exponential(x: torch.Tensor) -> torch.Tensor:
    a, b = _parts(x)
    return torch.polar(torch.exp(a), b)


def _logarithm(x: torch.Tensor) -> torch.Tensor:
    return _of_parts(torch.log(x.abs()), x.angle())


def _reciprocal(x: torch.Tensor) -> torch.Tensor:
    a, b = _parts(x)
    size = a * a + b * b
    return _of_parts(a / size, -b / size)


def _power(x: torch.Tensor, exponent: Any) -> torch.Tensor:
    if exponent not in (1, 2, 3, 4):
        raise ValueError(f"complex numbers to the power {exponent}; need 1 to 4")
    square = x * x if exponent > 1 else x
    return {1: x, 2: square, 3: square * x, 4: square * square}[int(exponent)]


def _root(x: torch.Tensor) -> torch.Tensor:
    """The root whose real part is 0 or more, without a difference of numbers that may be alike."""
    a, b = _parts(x)
    larger = torch.sqrt((x.abs() + a.abs()) / 2)
    other = torch.where(larger > 0, b.abs() / (2 * larger), 0)
    sign = torch.where(b < 0, -1.0, 1.0).to(b.dtype)
    real = torch.where(a < 0, other, larger)
    return _of_parts(real, sign * torch.where(a < 0, larger, other))


def _sine(x: torch.Tensor) -> torch.Tensor:
    a, b = _parts(x)
    even = (torch.exp(b) + torch.exp(-b)) / 2
    return _of_parts(torch.sin(a) * even, torch.cos(a) * torch.tanh(b) * even)


def _cosine(x: torch.Tensor) -> torch.Tensor:
    a, b = _parts(x)
    even = (torch.exp(b) + torch.exp(-b)) / 2
    return _of_parts(torch.cos(a) * even, -torch.sin(a) * torch.tanh(b) * even)


def _hyperbolic_tangent(x: torch.Tensor) -> torch.Tensor:
    """By tangents of the parts, which do not overflow as exponentials do."""
    a, b = _parts(x)
    t, u = torch.tanh(a), torch.tan(b)
    below = 1 + (t * u) ** 2
    return _of_parts(t * (1 + u * u) / below, u * (1 - t * t) / below)


def _running_product(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """In a logarithm of the length of steps, of which each multiplies twice as many."""
    length, step = x.shape[dim] if x.dim() else 1, 1
    if not isinstance(length, int):
        raise ValueError(f"a product of {length} complex numbers; need to know how many")
    while step < length:
        rest = length - step
        more = x.narrow(dim, step, rest) * x.narrow(dim, 0, rest)
        x = torch.cat([x.narrow(dim, 0, step), more], dim)
        step *= 2
    return x


def _whole_product(x: torch.Tensor, dim: int, keepdim: bool = False, **_: Any) -> torch.Tensor:
    made = _running_product(x, dim)
    return made.narrow(dim, -1, 1) if keepdim else made.select(dim, -1)


def _taken_from(x: torch.Tensor, other: Any, alpha: Any = 1) -> torch.Tensor:
    return -x * alpha + other


def _linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    made = _product(x, weight.mT)
    return made if bias is None else made + bias


def _diagonal(x: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> torch.Tensor:
    rank = x.dim()
    return _as_complex(torch.diagonal(pairs(x), offset, dim1 % rank, dim2 % rank).mT)


def _triangle(operator: torch._ops.OpOverload, x: torch.Tensor, diagonal: int = 0) -> torch.Tensor:
    return _of_parts(*(operator(part, diagonal) for part in _parts(x)))


def _solved(a: torch.Tensor, b: torch.Tensor, *, left: bool = True) -> torch.Tensor:
    """``X`` of ``A X = B``: real parts above imaginary ones, by a matrix of 2 x 2 blocks."""
    if not left:
        return _solved(a.mT, b.mT).mT
    if b.dim() == 1 or (b.dim() < a.dim() and b.shape == a.shape[:-1]):
        return _solved(a, b.unsqueeze(-1)).squeeze(-1)
    real, imaginary = _parts(a)
    rows = [torch.cat([real, -imaginary], -1), torch.cat([imaginary, real], -1)]
    made = torch.linalg.solve(torch.cat(rows, -2), torch.cat(_parts(b), -2))
    return _of_parts(*made.chunk(2, -2))


def _solved_with_info(
    a: torch.Tensor, b: torch.Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[torch.Tensor, ...]:
    """The same, with factors that nobody reads, and that nothing went wrong."""
    pivots = torch.zeros(a.shape[:-1], dtype=torch.int32)
    return _solved(a, b, left=left), a.clone(), pivots, pivots[..., 0].clone()


def _inverse(a: torch.Tensor) -> torch.Tensor:
    real, imaginary = _parts(a)
    rows = [torch.cat([real, -imaginary], -1), torch.cat([imaginary, real], -1)]
    made = torch.linalg.inv(torch.cat(rows, -2))[..., : a.shape[-1]]
    return _of_parts(*made.chunk(2, -2))


def _inverse_with_info(
    a: torch.Tensor, *, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    return _inverse(a), torch.zeros(a.shape[:-2], dtype=torch.int32)


_MOVED = (
    *(aten.slice.Tensor, aten.select.int, aten.flip.default, aten.index_select.default),
    *(aten.slice_scatter.default, aten.select_scatter.default, aten.index.Tensor),
    *(aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int, aten.cumsum.default),
    *(aten.sum.dim_IntList, aten.mean.dim, aten.copy.default),
)
_FUNCTIONS: dict[torch._ops.OpOverload, Made] = {
    **{operator: partial(_moved, operator) for operator in _MOVED},
    aten.sum.default: partial(_of_all, aten.sum.dim_IntList),
    aten.mean.default: partial(_of_all, aten.mean.dim),
    aten.roll.default: _rolled,
    aten.constant_pad_nd.default: _padded,
    aten.pad.default: _padded,
    aten.repeat.default: _repeated,
    aten.stack.default: _stacked,
    aten.unfold.default: _windows,
    aten.gather.default: _gathered,
    **dict.fromkeys((aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther), _chosen),
    aten.index_put.default: _put,
    aten.linalg_vector_norm.default: _length,
    **{
        operator: partial(_convolved, operator)
        for operator in (aten.conv1d.default, aten.conv2d.default)
    },
    aten.diagonal.default: _diagonal,
    **{
        operator: partial(_triangle, operator)
        for operator in (aten.tril.default, aten.triu.default)
    },
    **dict.fromkeys((aten.masked_fill.Scalar, aten.masked_fill.Tensor), _masked),
    aten.linalg_solve.default: _solved,
    aten._linalg_solve_ex.default: _solved_with_info,
    **dict.fromkeys((aten.linalg_inv.default, aten.inverse.default), _inverse),
    aten.linalg_inv_ex.default: _inverse_with_info,
    **dict.fromkeys(
        (aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default, aten.matmul.default),
        _product,
    ),
    **dict.fromkeys((aten.addmm.default, aten.baddbmm.default), _added_product),
    aten.linear.default: _linear,
    aten.rsub.Scalar: _taken_from,
    aten.square.default: lambda x: x * x,
    aten.div.Tensor: _quotient,
    aten.exp.default: _exponential,
    aten.log.default: _logarithm,
    aten.reciprocal.default: _reciprocal,
    aten.sqrt.default: _root,
    aten.rsqrt.default: lambda x: _reciprocal(_root(x)),
    aten.sin.default: _sine,
    aten.cos.default: _cosine,
    aten.tanh.default: _hyperbolic_tangent,
    aten.cumprod.default: _running_product,
    aten.prod.dim_int: _whole_product,
    aten.prod.default: lambda x, **_: _whole_product(x.reshape(-1), 0),
    aten.pow.Tensor_Scalar: _power,
}


def in_pairs(usual: Mapping[Any, Made]) -> dict[Any, Made]:
    """What stands for operators of which an operand is complex; of others, what ``usual`` has."""

    def made(operator: torch._ops.OpOverload, *args: Any, **named: Any) -> Any:
        if any(map(_is_complex, (*args, *named.values()))):
            return _FUNCTIONS[operator](*args, **named)
        other = usual.get(operator)
        return NotImplemented if other is None else other(*args, **named)

    table = {operator: partial(made, operator) for operator in _FUNCTIONS}
    nothing = {aten.zeros.default: lambda size, **named: _filled(size, 0, **named)}
    return {**table, aten.full.default: _filled, **nothing}
