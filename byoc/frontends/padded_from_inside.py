"""Padding with elements of the tensor itself, by widths that only a call knows."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax
from tvm.relax import op


def padded_from_inside(
    emit: Callable[[relax.Expr], relax.Expr],
    x: relax.Expr,
    axis: int,
    size: int | tvm.ir.Expr,
    begin: relax.Expr,
    extent: relax.Expr,
    mode: str,
) -> relax.Expr:
    """A tensor of ``size`` along an axis: each element's place in ``x`` is computed.

    ``begin`` and ``extent`` are integers as tensors: how much is put before, and how long the axis
    is. ``mode`` is one of ``nn.pad``. An axis that is mirrored by more than it has is mirrored
    once more, at its other end; the run refuses places beyond.
    """
    zero, one = (relax.const(number, "int64") for number in (0, 1))
    last = emit(op.subtract(extent, one))
    at = emit(op.subtract(emit(op.arange(0, size, 1, "int64")), begin))
    if mode == "reflect":
        back = emit(op.subtract(last, emit(op.abs(at))))
        at = emit(op.subtract(last, emit(op.abs(back))))
    elif mode == "circular":
        at = emit(op.floor_mod(at, extent))
    else:
        at = emit(op.maximum(emit(op.minimum(at, last)), zero))
    return emit(op.take(x, at, axis))
