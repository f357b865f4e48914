"""Bring what PyTorch's importer writes around its softmax into dtypes that kernels have.

bool(max(int8(b)))             = bool(max(float(b)))         whether any of booleans is true
where(c, full_like(x, v), y)   = where(c, v, y)              if the shape of y is the result's
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, dtype_of, op_name, scalar_of, shape_of
from codegen_cc.dtypes import SINGLE


def any_of_booleans(block: Block) -> None:
    """Rewrite maxima over booleans as int8, of whatever shape."""
    for var, call in block.calls("relax.astype"):
        largest = block.call(call.args[0], "relax.max", "relax.min")
        if largest is None or dtype_of(var) != "bool" or dtype_of(largest) != "int8":
            continue
        widened = block.call(largest.args[0], "relax.astype")
        if widened is None or dtype_of(widened.args[0]) != "bool":
            continue
        numbers = block.emit(var, relax.op.astype(widened.args[0], SINGLE))
        extreme = relax.op.max if op_name(largest) == "relax.max" else relax.op.min
        axes = None if largest.attrs.axis is None else [int(axis) for axis in largest.attrs.axis]
        value = block.emit(var, extreme(numbers, axes, bool(largest.attrs.keepdims)))
        block.replace(var, relax.op.astype(value, "bool"))


def scalar_from_full(block: Block) -> None:
    """Let a choice read one number instead of a tensor full of it."""
    for var, call in block.calls("relax.where"):
        for side in (1, 2):
            full = block.call(call.args[side], "relax.full_like", "relax.full")
            if full is None or dtype_of(full) != dtype_of(var):
                continue
            number = full.args[1]
            other = call.args[3 - side]
            if scalar_of(number) is None or shape_of(number) != ():
                continue
            if shape_of(other) is None or shape_of(other) != shape_of(var):
                continue
            operands = [call.args[0], number, other] if side == 1 else [call.args[0], other, number]
            block.replace(var, relax.op.where(*operands))
            break
