"""Move integers instead of the numbers that they stand for.

quantize(move(dequantize(q, s, z)), s, z)     =  move(q)
quantize(join(dequantize(q, s, z), ...), t, y)  =  join(quantize(dequantize(q, s, z), t, y), ...)
matmul(reshape(dequantize(q, s, z)), weight)  =  matmul(dequantize(reshape(q), s, z), weight)

In the first, ``move`` is none, one or several operators that only move elements, pick the greatest
of a window, or join tensors; scales and zero points are constants of one element. Dequantising and
quantising again with the same ones gives the same integer: its distance from the zero point is
below 2^9, and two roundings err by less than 2^-22 of it. With others, parts of what is joined are
quantised as the whole is, and joined as bytes. It is not so the other way around, and there nothing
changes. In the last, scale and zero point may be computed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from byoc.ir.dataflow import Block, dtype_of, op_name, scalar_of, static_shape_of
from byoc.ir.walk import items_of
from codegen_cc.dtypes import KERNEL_BYTES

#: Operators whose first operand, or all in a tuple there, move and nothing else.
MOVES = (
    *("relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.flatten"),
    *("relax.permute_dims", "relax.strided_slice", "relax.broadcast_to", "relax.concat"),
    *("relax.take", "relax.nn.max_pool1d", "relax.nn.max_pool2d"),
)
#: Those that keep every element once.
_PLAIN = (*MOVES[:4], "relax.permute_dims", "relax.concat")

#: Scale, zero point, dtype.
Parameters = tuple[float, float, str]


def quantised_movement(block: Block) -> None:
    """Rewrite quantisations of nothing but moved integers, per tensor."""
    for var, call in block.calls("relax.quantize"):
        parameters = _parameters(call, dtype_of(var))
        if parameters is None or not _are_integers(block, call.args[0], parameters):
            continue
        moved = _Mover(block, var, call, parameters).moved(call.args[0])
        if isinstance(moved, relax.Call):
            block.replace(var, moved)
        else:
            block.alias(var, moved)


def dequantised_rows(block: Block) -> None:
    """Reshape integers on their way to a product, which is one of integers then."""
    for var, call in block.calls("relax.matmul"):
        turned = block.call(call.args[0], "relax.reshape")
        inner = block.call(turned.args[0], "relax.dequantize") if turned is not None else None
        if inner is None or any(static_shape_of(n) not in ((), (1,)) for n in inner.args[1:]):
            continue
        moved = block.emit(var, relax.op.reshape(inner.args[0], turned.args[1]), "integers")
        scale, zero = inner.args[1:]
        rows = block.emit(var, relax.op.dequantize(moved, scale, zero, 0, dtype_of(turned)))
        block.replace(var, relax.Call(call.op, [rows, call.args[1]], call.attrs, call.ty_args))


def _parameters(call: relax.Call, dtype: str) -> Parameters | None:
    """Those of one element, whose integers come back from floats; None for others."""
    scale, zero = (scalar_of(argument) for argument in call.args[1:3])
    if scale is None or zero is None or dtype not in KERNEL_BYTES:
        return None
    greatest = np.finfo(np.single).max / 2**9
    return (scale, zero, dtype) if 0 < scale < greatest else None


def _are_integers(
    block: Block, expr: relax.Expr, parameters: Parameters, others: bool = False
) -> bool:
    """Whether a value is made of integers, which nothing but moved.

    They have these parameters, or with ``others`` any: parts of what is joined may.
    """
    call = block.call(expr, "relax.dequantize")
    if call is not None:
        found = _parameters(call, dtype_of(call.args[0]))
        return found == parameters or (others and found is not None)
    call = block.call(expr, *MOVES)
    if call is None:
        return False
    name = op_name(call)
    parts = (name == "relax.concat" and block.is_private(expr)) or (others and name in _PLAIN)
    return all(_are_integers(block, x, parameters, parts) for x in items_of(call.args[0]))


def moves_alone(block: Block, expr: relax.Expr, known: Callable[[relax.Expr], bool]) -> bool:
    """Whether a value is made of ``known`` ones, which nothing but moved."""
    if known(expr):
        return True
    call = block.call(expr, *MOVES)
    return call is not None and all(moves_alone(block, x, known) for x in items_of(call.args[0]))


class _Mover:
    """Writes the integers of values that one quantisation reads, before ``anchor``."""

    def __init__(
        self, block: Block, anchor: relax.Var, quantize: relax.Call, parameters: Parameters
    ) -> None:
        self.block = block
        self.anchor = anchor
        self.quantize = quantize
        self.parameters = parameters
        self.known: dict[relax.Expr, relax.Expr] = {}

    def moved(self, expr: relax.Expr) -> relax.Expr:
        """The integers of a value: a variable, or the call that makes them last."""
        call = self.block.values[expr]
        if op_name(call) == "relax.dequantize":
            if _parameters(call, dtype_of(call.args[0])) == self.parameters:
                return call.args[0]
            own = self.quantize
            return relax.Call(own.op, [expr, *list(own.args)[1:]], own.attrs, own.ty_args)
        operands: list[relax.Expr] = []
        for operand in items_of(call.args[0]):
            if operand not in self.known:
                moved = self.moved(operand)
                call_moved = isinstance(moved, relax.Call)
                self.known[operand] = self.block.emit(self.anchor, moved) if call_moved else moved
            operands.append(self.known[operand])
        first = relax.Tuple(operands) if isinstance(call.args[0], relax.Tuple) else operands[0]
        return relax.Call(call.op, [first, *list(call.args)[1:]], call.attrs, call.ty_args)
