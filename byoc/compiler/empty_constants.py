"""Store constants without elements in a form that TVM's runtime can load.

It takes a constant of shape [6, 0] for a damaged one, as it looks at the first extent alone.
One of shape [0] is loaded, and reshaped where it is read.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from byoc.ir.dataflow import Constant, static_shape_of


def load_empty_constants(lowered: tvm.IRModule) -> tvm.IRModule:
    """Reshape them from [0], in a module that is ready for the virtual machine."""
    out = lowered
    for gvar, func in lowered.functions.items():
        if isinstance(func, relax.Function) and _has_one(func):
            if out is lowered:
                out = lowered.clone()
            out[gvar] = _Reshaped().visit_expr(func)
    return out


def _cannot_be_loaded(expr: relax.Expr) -> bool:
    shape = static_shape_of(expr) if isinstance(expr, Constant) else None
    return bool(shape) and shape[0] != 0 and 0 in shape


def _has_one(func: relax.Function) -> bool:
    found = False

    def look(expr: relax.Expr) -> None:
        nonlocal found
        found = found or _cannot_be_loaded(expr)

    relax.analysis.post_order_visit(func, look)
    return found


@relax.expr_functor.mutator
class _Reshaped(relax.PyExprMutator):
    def visit_generic_const_(self, op: Constant) -> relax.Expr:
        if not _cannot_be_loaded(op):
            return op
        dtype = str(op.ty.dtype)
        nothing = relax.const(np.empty(0, dtype), dtype)
        reshape = relax.ExternFunc("vm.builtin.reshape")
        call = relax.Call(reshape, [nothing, op.ty.shape], None, [op.ty])
        return self.builder_.emit(call)
