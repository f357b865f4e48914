"""What the checks of an import know of an operand, and how messages write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from byoc.frontends.onnx.check_quantised import Given
from byoc.frontends.onnx.wrong_forms import Operand
from byoc.ir.dataflow import array_of


def given_input(name: str, expr: relax.Expr | None) -> Given | None:
    """An input, for the checks of quantised tensors; None for one left out."""
    found = dtype_and_shape(expr) if isinstance(expr, relax.Expr) else None
    return None if found is None else Given(name, *found, array_of(expr))


def form_operand(expr: relax.Expr | None) -> Operand:
    """An input, for the table of wrong forms."""
    if expr is None:
        return Operand(None)
    found = dtype_and_shape(expr) if isinstance(expr, relax.Expr) else None
    dtype, shape = found or ("unknown", None)
    constant = isinstance(expr, tvm.ir.GenericConst | relax.ShapeExpr)
    return Operand(dtype or "unknown", None if shape is None else len(shape), constant)


def dtype_and_shape(expr: relax.Expr) -> tuple[str, list[int | None] | None] | None:
    """Dtype and extents (None where unknown) of a tensor or of what stands for one."""
    type_ = expr.ty
    if isinstance(type_, relax.ShapeType):
        return "int64", [type_.ndim if type_.ndim >= 0 else None]
    if tvm.ir.is_prim_expr(expr):
        return str(getattr(expr, "dtype", None) or type_), []
    if not isinstance(type_, relax.TensorType):
        return None
    dtype = str(type_.dtype) if type_.dtype is not None else ""
    if type_.ndim < 0:
        return dtype, None
    values = getattr(type_.shape, "values", None)
    if values is None:
        return dtype, [None] * type_.ndim
    return dtype, [int(dim) if isinstance(dim, tvm.tirx.IntImm) else None for dim in values]


def shape_text(shape: Sequence[int | None]) -> str:
    """Extents in a message, ``?`` where unknown."""
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"


def value_text(value: Any) -> str:
    """An attribute's value in a message."""
    if isinstance(value, bytes):
        return repr(value.decode(errors="replace"))
    return repr(value) if isinstance(value, int | float | tuple) else type(value).__name__
