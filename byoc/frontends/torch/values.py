"""What converters work with: the values of a traced program as expressions of Relax."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
import torch
import tvm
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes
from tvm import relax

from byoc.frontends.named_builder import NamedBuilder
from byoc.frontends.torch.sizes import size_tensor
from byoc.frontends.torch.symbols import Symbols
from byoc.ir.dataflow import constant, dtype_of, shape_of
from codegen_cc.dim import at_most, is_static, same
from codegen_cc.dtypes import KERNEL_HALVES, SINGLE

#: From a node's arguments, by name, to its results.
Converter = Callable[..., Any]

#: A tensor that is known while importing, one that is not, or a number.
Value = torch.Tensor | relax.Expr | bool | int | float


def dtype_name(dtype: torch.dtype) -> str:
    """Relax's name of a dtype."""
    return str(dtype).removeprefix("torch.")


class Graph:
    """The program under construction, and the node at work.

    ``results`` are shapes and dtypes of the node's results as PyTorch has them, one fake tensor for
    each, complex ones as pairs of real numbers; ``shape`` and ``dtype`` are the first one's.
    ``read`` are the places of those that another node takes out of several.
    """

    def __init__(self, builder: NamedBuilder, symbols: Symbols) -> None:
        self.builder = builder
        self.symbols = symbols
        self.results: Sequence[Any] = ()
        self.read: Collection[int] = ()
        #: Whether the node's result is taken away from something.
        self.is_taken_away = False
        #: The node's operands that are complex.
        self.complex: Sequence[Any] = ()
        self._constants: dict[int, tuple[torch.Tensor, relax.Expr]] = {}
        self._parts: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    @property
    def shape(self) -> list[Any]:
        """The extents of the node's first result."""
        return self.extents(self.results[0].shape)

    @property
    def dtype(self) -> str:
        """The dtype of the node's first result."""
        return dtype_name(self.results[0].dtype)

    def extents(self, shape: Sequence[Any]) -> list[Any]:
        """Extents of Relax of a shape of PyTorch's."""
        return [self.symbols.extent(size) for size in shape]

    def emit(self, expr: relax.Expr) -> relax.Var:
        """Bind an expression, with what is nested in it."""
        return self.builder.emit(expr)

    def tensor(self, value: Value, dtype: str | None = None) -> relax.Expr:
        """An expression of a value; of another dtype where one is asked for."""
        if isinstance(value, complex):
            parts = torch.tensor([value.real, value.imag], dtype=torch.float64)
            return constant_of(parts.to(getattr(torch, self.dtype)))
        if isinstance(value, torch.Tensor):
            if value.is_complex():
                value = self._pairs(value)
            elif _is_wider_number(value, dtype):
                return self._number(value.item(), dtype)
            if dtype is not None and dtype_name(value.dtype) != dtype:
                value = value.to(getattr(torch, dtype))
            return self._constant(value)
        if _is_extent(value):
            return size_tensor(self.builder, value, dtype or self.dtype)
        if not isinstance(value, tvm.ir.Expr):
            return self._number(_plain(value), dtype or self.dtype)
        if dtype is None or dtype_of(value) == dtype:
            return value
        return self.emit(relax.op.astype(value, dtype))

    def is_complex(self, value: Value) -> bool:
        """Whether a value of the node is complex: a constant, or one that a converter made."""
        if isinstance(value, torch.Tensor | complex):
            return isinstance(value, complex) or value.is_complex()
        return any(value is known for known in self.complex)

    def tensors(self, *values: Value) -> list[relax.Expr]:
        """Expressions of values, all of the dtype that PyTorch computes with them in, to which
        numbers are rounded: what compares them may tell."""
        dtype = self.promoted(*values)
        return [self.tensor(_rounded(value, dtype), dtype) for value in values]

    def promoted(self, *values: Value) -> str:
        """The dtype that values of these kinds meet in."""
        kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
        return dtype_name(elementwise_dtypes(*map(_like, values), type_promotion_kind=kind)[1])

    def fitted(self, value: Any) -> Any:
        """An operand of a function of single elements, in extents that meet those of its result.

        PyTorch may know by the range of a size what we do not, such as that ``min(n, 64)`` is
        ``n``, or ``min(n, 1)`` 1. Each call looks whether the reshape keeps the elements.
        """
        shape = shape_of(value) if isinstance(value, relax.Expr) else None
        wanted = [self.symbols.dim(size) for size in self.results[0].shape]
        if not shape or len(shape) > len(wanted):
            return value
        extents, uneven, ones = list(value.ty.shape.values), [], 0
        for axis in range(-len(shape), 0):
            sizes = (shape[axis], wanted[axis])
            if shape[axis] == 1 or is_static(sizes) or same(*sizes):
                continue
            if at_most(shape[axis], 1):
                extents[axis], ones = 1, ones + 1
            else:
                uneven.append(axis)
        if ones:
            for axis in uneven[:1]:
                extents[axis] = self.shape[axis]
            return value if len(uneven) > 1 else self.emit(relax.op.reshape(value, extents))
        return self.with_extents(value, {axis: self.shape[axis] for axis in uneven})

    def beside(self, part: relax.Expr, *along: int) -> relax.Expr:
        """A tensor in the result's extents of all axes but those along which it is its own."""
        wanted, shape = {}, shape_of(part)
        for axis, size in enumerate(self.results[0].shape):
            sizes = (shape[axis], self.symbols.dim(size))
            if axis in along or is_static(sizes) or shape[axis] == 1 or same(*sizes):
                continue
            wanted[axis] = self.symbols.extent(size)
        return self.with_extents(part, wanted)

    def with_extents(self, value: relax.Expr, wanted: Mapping[int, Any]) -> relax.Expr:
        """A tensor whose axes are called as long as PyTorch knows that they are: an image of even
        size that is halved and doubled is as large as before. A reshape for each axis tells the
        elements of that axis alone, which each call compares."""
        for axis, extent in wanted.items():
            extents = list(value.ty.shape.values)
            extents[axis] = extent
            value = self.emit(relax.op.reshape(value, extents))
        return value

    def _number(self, value: bool | int | float, dtype: str) -> relax.Expr:
        """A constant. Beside halves it is the number in single precision, as PyTorch computes with
        it: -1e9 is finite beside float16."""
        if dtype in KERNEL_HALVES and isfinite(value):
            single = torch.tensor(value, dtype=torch.float64).to(getattr(torch, SINGLE))
            if single.to(getattr(torch, dtype)) != single:
                return self.emit(relax.op.astype(constant_of(single), dtype))
        return constant(np.array(value), dtype)

    def _pairs(self, value: torch.Tensor) -> torch.Tensor:
        """A complex constant as real and imaginary parts, the same tensor each time."""
        known = self._parts.get(id(value))
        if known is None:
            known = self._parts[id(value)] = (value, torch.view_as_real(value.resolve_conj()))
        return known[1]

    def _constant(self, value: torch.Tensor) -> relax.Expr:
        """The tensor's memory as a constant, once for each tensor."""
        known = self._constants.get(id(value))
        if known is None:
            known = self._constants[id(value)] = (value, constant_of(value))
        return known[1]


def constant_of(value: torch.Tensor) -> relax.Expr:
    """A constant in the tensor's own memory, or in a copy where it is not dense and aligned."""
    dense = value.detach().contiguous()
    if dense.dtype == torch.bool or dense.numel() == 0 or dense.dim() == 0:
        wide = dense.float() if dense.dtype == torch.bfloat16 else dense
        return constant(wide.numpy(), dtype_name(dense.dtype))
    if dense.data_ptr() % 64:
        room = torch.empty(dense.numel() * dense.element_size() + 64, dtype=torch.uint8)
        start = -room.data_ptr() % 64
        room = room[start : start + dense.numel() * dense.element_size()]
        dense = room.view(dense.dtype).view(dense.shape).copy_(dense)
    return relax.const(tvm.runtime.from_dlpack(dense))


def _is_wider_number(value: torch.Tensor, dtype: str | None) -> bool:
    """Whether a tensor is one float of more bits than the half that is asked for."""
    return (
        value.dim() == 0
        and value.dtype.is_floating_point
        and value.dtype.itemsize > 2
        and (dtype in KERNEL_HALVES)
    )


def _rounded(value: Value, dtype: str) -> Value:
    """A number as a half of this dtype has it; any other value as it is."""
    if dtype not in KERNEL_HALVES:
        return value
    if isinstance(value, bool | int | float):
        value = torch.tensor(value, dtype=torch.float64)
    if isinstance(value, torch.Tensor) and _is_wider_number(value, dtype):
        return value.to(getattr(torch, dtype))
    return value


def _like(value: Value) -> Any:
    """What promotes as a value does: a tensor of its rank and dtype, or the number itself."""
    if isinstance(value, torch.Tensor):
        return torch.empty([1] * value.dim(), dtype=value.dtype, device="meta")
    if isinstance(value, tvm.ir.Expr) and isinstance(value.ty, relax.TensorType):
        dtype = getattr(torch, dtype_of(value))
        return torch.empty([1] * value.ty.ndim, dtype=dtype, device="meta")
    return 1 if _is_extent(value) else _plain(value)


def _is_extent(value: Any) -> bool:
    """Whether a value is a size that calls decide."""
    return isinstance(value, tvm.ir.Expr) and isinstance(value.ty, tvm.ir.PrimType)


def _plain(value: Any) -> bool | int | float:
    if isinstance(value, bool | int | float):
        return value
    raise ValueError(f"{value} beside tensors; need a number")
