"""Round numbers to those that 16 bits tell apart, as in networks that are quantised to these.

    dequantize(quantize(x, s, z), s, z)  =  clip(round(x / s), low - z, high - z) * s
    the same of move(that)               =  move(that)

where s and z are constants of one element, the integers have 16 bits from low to high, and ``move``
moves elements. All integers on the way are below 2^17, which float32 holds exactly, so nothing is
rounded that was not before; products are of floats either way, as no kernel multiplies 16 bits.
Numbers that were rounded come back: v / s is off from an integer by less than 2^17 times 2^-23.
So do infinities, of large scales as masks of attention have: they stand for the same last integer.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from tvm import relax

from byoc.canonicalise.quantised_movement import Parameters, moves_alone
from byoc.ir.dataflow import Block, constant, dtype_of, scalar_of
from codegen_cc.dtypes import SINGLE

_DTYPES = ("int16", "uint16")


def rounded_to_16_bits(block: Block) -> None:
    """Rewrite pairs of quantize and dequantize with 16 bits between them."""
    known: dict[relax.Var, Parameters] = {}
    rounded: dict[relax.Expr, relax.Var] = {}
    for var, call in block.calls("relax.dequantize"):
        inner = block.call(call.args[0], "relax.quantize")
        parameters = None if inner is None else _parameters(call)
        if parameters is None or parameters != _parameters(inner, dtype_of(call.args[0])):
            continue
        x = inner.args[0]
        if dtype_of(x) != SINGLE or dtype_of(var) != SINGLE:
            continue
        if moves_alone(block, x, partial(_is_rounded, known, parameters)):
            block.alias(var, x)
        elif call.args[0] in rounded:
            block.alias(var, rounded[call.args[0]])
        else:
            _round(block, var, x, parameters)
            known[var] = parameters
            rounded[call.args[0]] = var


def _parameters(call: relax.Call, dtype: str | None = None) -> Parameters | None:
    """Scale, zero point and dtype of the integers, each of one element; None for others."""
    dtype = dtype_of(call.args[0]) if dtype is None else dtype
    scale, zero = (scalar_of(argument) for argument in call.args[1:3])
    if dtype not in _DTYPES or scale is None or zero is None:
        return None
    if not np.finfo(np.single).tiny <= scale < np.inf:
        return None
    return scale, zero, dtype


def _is_rounded(
    known: dict[relax.Var, Parameters], parameters: Parameters, expr: relax.Expr
) -> bool:
    return known.get(expr) == parameters


def _round(block: Block, var: relax.Var, x: relax.Expr, parameters: Parameters) -> None:
    scale, zero, dtype = parameters
    bounds = np.iinfo(dtype)
    step = constant(np.array(scale), SINGLE)
    steps = block.emit(var, relax.op.divide(x, step), "steps")
    whole = block.emit(var, relax.op.round(steps), "whole")
    kept = block.emit(var, relax.op.clip(whole, bounds.min - zero, bounds.max - zero), "kept")
    block.replace(var, relax.op.multiply(kept, step))
