"""Call functions by name again that ``reachable_regions`` lets a circle call through variables.

``RunCodegen`` is done by then. TVM's FuseTIR writes a name that is no function's for a variable's
function whose shapes have symbols.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from byoc.ir.dataflow import is_candidate
from byoc.ir.walk import expressions_of


def direct_calls(mod: tvm.IRModule) -> tvm.IRModule:
    """Replace calls of variables that are bound to functions; the module is not changed."""
    out = mod
    for gvar, func in mod.functions.items():
        if not is_candidate(func):
            continue
        bound = _bound_functions(func)
        if bound:
            out = mod.clone() if out is mod else out
            direct = _DirectCalls(bound).visit_expr(func)
            out[gvar] = relax.analysis.remove_all_unused(direct)
    return out


def _bound_functions(func: relax.Function) -> dict[relax.Var, tvm.ir.GlobalVar]:
    """Variables that are other names of functions, in branches as well."""
    found: dict[relax.Var, tvm.ir.GlobalVar] = {}

    for expr in expressions_of(func):
        if isinstance(expr, relax.SeqExpr):
            for block in expr.blocks:
                for binding in block.bindings:
                    if isinstance(binding.value, tvm.ir.GlobalVar):
                        found[binding.var] = binding.value

    return found


@mutator
class _DirectCalls(PyExprMutator):
    """Calls functions in place of variables."""

    def __init__(self, bound: dict[relax.Var, tvm.ir.GlobalVar]) -> None:
        super().__init__()
        self._bound = bound

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        function = self._bound.get(call.op) if isinstance(call.op, relax.Var) else None
        call = self.visit_expr_post_order(call)
        if function is None:
            return call
        return relax.Call(function, call.args, call.attrs, call.ty_args, call.span)
