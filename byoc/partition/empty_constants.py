"""Store constants without elements in a form that TVM's runtime can load.

It takes a constant of shape [6, 0] for a damaged one, as it looks at the first extent alone.
One of shape [0] is loaded, and reshaped where it is read.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from byoc.ir.dataflow import Constant, is_candidate, static_shape_of
from byoc.ir.walk import expressions_of

_RESHAPE = "vm.builtin.reshape"


def empty_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """Reshape them from [0] in what TVM compiles of a partitioned module."""
    return _reshaped(mod, lowered=False)


def empty_constants_of_lowered(mod: tvm.IRModule) -> tvm.IRModule:
    """Reshape them from [0], in a module that is ready for the virtual machine.

    TVM's own passes may have made further ones.
    """
    return _reshaped(mod, lowered=True)


def _reshaped(mod: tvm.IRModule, lowered: bool) -> tvm.IRModule:
    out = mod
    for gvar, func in mod.functions.items():
        if is_candidate(func) and _has_one(func):
            if out is mod:
                out = mod.clone()
            out[gvar] = _Reshaped(lowered).visit_expr(func)
    return out


def _cannot_be_loaded(expr: relax.Expr) -> bool:
    shape = static_shape_of(expr) if isinstance(expr, Constant) else None
    return bool(shape) and shape[0] != 0 and 0 in shape


def _has_one(func: relax.Function) -> bool:
    return any(map(_cannot_be_loaded, expressions_of(func)))


@relax.expr_functor.mutator
class _Reshaped(relax.PyExprMutator):
    def __init__(self, lowered: bool) -> None:
        super().__init__()
        self.lowered = lowered

    def visit_generic_const_(self, op: Constant) -> relax.Expr:
        if not _cannot_be_loaded(op):
            return op
        dtype = str(op.ty.dtype)
        nothing = relax.const(np.empty(0, dtype), dtype)
        if self.lowered:
            call = relax.Call(relax.ExternFunc(_RESHAPE), [nothing, op.ty.shape], None, [op.ty])
        else:
            call = relax.op.call_pure_packed(_RESHAPE, nothing, op.ty.shape, ty_args=[op.ty])
        return self.builder_.emit(call)
