"""Look up functions of one quantised tensor, whatever they are made of, in a table of 256 bytes.

    quantize(f(dequantize(x)))  =  take(table, x)          table[i] = quantize(f(dequantize(i)))

where ``f`` are elementwise operators of floats, with constants of one element, and further
quantizations; ``x`` may be read more than once, as in a GELU.  The scales are those of whole
tensors.  A signed x counts from the end of the table where it is negative, which is the mode "wrap"
of ``take``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf

import numpy as np
from tvm import relax

from byoc.canonicalise.dequantised_weights import PRODUCTS
from byoc.canonicalise.fold_constants import FOLDERS
from byoc.ir.dataflow import (
    Block,
    Constant,
    array_of,
    constant,
    dtype_of,
    op_name,
    scalar_of,
    shape_of,
)
from codegen_cc.dtypes import KERNEL_BYTES, SINGLE

ENTRIES = 256

Arrays = list[np.ndarray]


def _quantize(call: relax.Call, arrays: Arrays) -> np.ndarray:
    x, scale, zero = arrays
    bounds = np.iinfo(str(call.ty.dtype))
    steps = np.rint(x / scale.reshape(())) + np.single(zero.reshape(()))
    steps = np.where(np.isnan(steps), np.single(bounds.min), steps)
    return np.clip(steps, bounds.min, bounds.max).astype(bounds.dtype)


_PLAIN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relax.erf": lambda x: np.array([erf(value) for value in x], np.single),
    "relax.sigmoid": lambda x: (1.0 / (1.0 + np.exp(-x.astype(np.float64)))).astype(np.single),
    "relax.tanh": lambda x: np.tanh(x.astype(np.float64)).astype(np.single),
    "relax.abs": np.abs,
    "relax.nn.relu": lambda x: np.maximum(x, np.single(0)),
}
_ARITHMETIC = (
    *("relax.add", "relax.subtract", "relax.multiply", "relax.divide"),
    *("relax.maximum", "relax.minimum", "relax.negative", "relax.sqrt"),
)
#: Steps between products and quantisations, which their kernels take.
_FUSED = ("relax.add", "relax.nn.relu", "relax.clip")
_STEPS = ("relax.dequantize", "relax.quantize")


def byte_functions(block: Block) -> None:
    """Rewrite quantisations of functions of one quantised tensor."""
    for var, call in block.calls("relax.quantize"):
        x = _source(block, var)
        if not isinstance(x, relax.Var) or x.same_as(var) or shape_of(x) != shape_of(var):
            continue
        if _follows_product(block, call.args[0], x):
            continue
        indices = np.arange(ENTRIES, dtype=np.uint8).view(dtype_of(x))
        table = _value(block, var, x, indices, {})
        if table is not None and table.shape == (ENTRIES,):
            entries = constant(table, dtype_of(call))
            block.replace(var, relax.op.take(entries, x, axis=0, mode="wrap"))


def lookup_table(call: relax.Call) -> np.ndarray | None:
    """The table of a ``take`` that this rule wrote; None for others."""
    table, x = call.args
    if not isinstance(table, Constant) or dtype_of(x) not in KERNEL_BYTES:
        return None
    if dtype_of(table) not in KERNEL_BYTES or shape_of(table) != (ENTRIES,):
        return None
    return array_of(table) if call.attrs.mode == "wrap" else None


def _follows_product(block: Block, var: relax.Expr, x: relax.Var) -> bool:
    """Whether ``var`` only dequantises what a product quantised to ``x``.

    The kernel of the product makes the other integers as well.
    """
    call = block.call(var, "relax.dequantize")
    if call is None or not call.args[0].same_as(x) or not block.is_private(x):
        return False
    made = block.call(x, "relax.quantize")
    while made is not None:
        source = made.args[0]
        if block.call(source, *PRODUCTS) is not None:
            return True
        made = block.call(source, *_FUSED)
        if made is not None and not all(isinstance(other, Constant) for other in made.args[1:]):
            return False
    return False


def _source(block: Block, expr: relax.Expr) -> relax.Expr | None:
    """The quantised tensor that a value is a function of; the value itself where it is no function.

    A constant is one where a value depends on no tensor; None where it depends on several.
    """
    if isinstance(expr, Constant):
        return expr if scalar_of(expr) is not None else None
    call = block.values.get(expr)
    is_byte = dtype_of(expr) in KERNEL_BYTES
    operands = _operands(call) if isinstance(call, relax.Call) else None
    if operands is None:
        return expr if is_byte else None
    found = {None}
    for operand in operands:
        source = _source(block, operand)
        if source is None:
            return expr if is_byte else None
        if not isinstance(source, Constant):
            found.add(source)
    found.discard(None)
    if len(found) != 1:
        return expr if is_byte else None
    (only,) = found
    return only if shape_of(only) == shape_of(expr) else expr if is_byte else None


def _operands(call: relax.Call) -> list[relax.Expr] | None:
    """What an elementwise step reads; None for other calls."""
    name = op_name(call)
    if name == "relax.take" and lookup_table(call) is not None:
        return [call.args[1]]
    if name in _STEPS:
        alone = all(scalar_of(number) is not None for number in call.args[1:])
        return list(call.args) if alone else None
    known = name in _PLAIN or name in _ARITHMETIC
    return list(call.args) if known and str(call.ty.dtype) == SINGLE else None


def _value(
    block: Block, expr: relax.Expr, x: relax.Var, indices: np.ndarray, known: dict
) -> np.ndarray | None:
    """The values of an expression where x is ``indices``."""
    if isinstance(expr, Constant):
        return array_of(expr).reshape(1)
    if expr.same_as(x):
        return indices
    if expr in known:
        return known[expr]
    call = block.values[expr]
    name = op_name(call)
    arrays = [_value(block, operand, x, indices, known) for operand in _operands(call)]
    if any(array is None for array in arrays):
        return None
    with np.errstate(all="ignore"):
        if name == "relax.take":
            result = lookup_table(call)[arrays[0].view(np.uint8)]
        elif name == "relax.quantize":
            result = _quantize(call, arrays)
        elif name in _PLAIN:
            result = _PLAIN[name](*arrays)
        else:
            result = FOLDERS[name](call, arrays)
    known[expr] = result
    return result
