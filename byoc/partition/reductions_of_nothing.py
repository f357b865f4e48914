"""Give reductions that TVM computes their first value where their axes turn out to be empty.

    sum(x) -> where(n == 0, 0, sum(x)), n the number of terms; prod, max, min, mean and matmul alike

An axis may be as long as data decide. TVM's loops set a result to its first value in the first
round, and leave it as it was without any (see ``values_of_nothing`` for axes of known size).
"""

from __future__ import annotations

from functools import reduce
from operator import mul

import numpy as np
import tvm
from tvm import relax

from byoc.canonicalise.values_of_nothing import first_value
from byoc.ir.dataflow import Block, dtype_of, map_blocks, op_name

_REDUCTIONS = ("relax.sum", "relax.mean", "relax.prod", "relax.max", "relax.min", "relax.matmul")


def reductions_of_nothing(mod: tvm.IRModule) -> tvm.IRModule:
    """Rewrite the calls that are left to TVM, those in branches too."""

    def rewrite(block: relax.DataflowBlock) -> relax.DataflowBlock:
        open_block = Block(block, mod)
        for var, call in open_block.calls(*_REDUCTIONS):
            terms = _open_extents(call)
            if terms:
                _choose(open_block, var, call, reduce(mul, terms))
        return open_block.finish()

    return map_blocks(mod, rewrite, nested=True)


def _open_extents(call: relax.Call) -> list[tvm.ir.PrimExpr]:
    """The extents of the axes that a call sums up, but for those that are known."""
    source = call.args[0]
    if not isinstance(source.ty, relax.TensorType) or not isinstance(
        source.ty.shape, relax.ShapeExpr
    ):
        return []
    extents = list(source.ty.shape.values)
    if op_name(call) == "relax.matmul":
        axes = [-1]
    else:
        axes = range(len(extents)) if call.attrs.axis is None else call.attrs.axis
    summed = [extents[int(axis)] for axis in axes]
    return [extent for extent in summed if not isinstance(extent, tvm.tirx.IntImm)]


def _choose(block: Block, var: relax.Var, call: relax.Call, terms: tvm.ir.PrimExpr) -> None:
    """Bind ``var`` to the first value where there are no terms, else to what the call gives."""
    found = block.emit(var, call)
    count = block.emit(var, relax.op.shape_to_tensor(relax.ShapeExpr([terms])))
    count = block.emit(var, relax.op.reshape(count, relax.ShapeExpr([])))
    none = block.emit(var, relax.op.equal(count, relax.const(0, "int64")))
    dtype = dtype_of(var)
    first = relax.const(np.full((), first_value(op_name(call), dtype), dtype), dtype)
    block.replace(var, relax.op.where(none, first, found))
