"""Bring every region to where ``RunCodegen`` finds it.

TVM's pass starts at the public functions of a module and follows calls. It has two limits:

1. It replaces calls of regions in the public functions alone. It visits the private ones that these
   call, and drops what it made of them, so that they go on calling functions which nobody compiles.
   A private function that calls a region becomes public here, under its own name. Virtual machines
   know all functions by name, so that nothing else changes.
2. It follows calls without end where functions call each other in a circle, and ends the process. A
   call along a circle is made through a variable here (``f = main; f(x)``), which it does not
   follow. So is every call of a function that is called at several places, as it would follow each
   of them, and all that they lead to, again.
"""

from __future__ import annotations

from collections import Counter

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from byoc.ir.dataflow import is_candidate, is_region
from byoc.ir.walk import expressions_of

_SYMBOL = "global_symbol"


def reachable_regions(mod: tvm.IRModule) -> tvm.IRModule:
    """Make functions with regions public, and break circles of calls. ``mod`` is not changed."""
    calls = {
        gvar: _called_by(func)
        for gvar, func in mod.functions.items()
        if isinstance(func, relax.Function)
    }
    regions = {gvar for gvar in calls if is_region(mod[gvar])}
    sites = Counter(callee for called in calls.values() for callee in called.elements())
    often = {gvar for gvar, count in sites.items() if count > 1 and is_candidate(mod[gvar])}
    out = mod.clone()
    for gvar, func in mod.functions.items():
        if not is_candidate(func):
            continue
        if calls[gvar].keys() & (regions | often) and _SYMBOL not in (func.attrs or {}):
            out[gvar] = func.with_attr(_SYMBOL, gvar.name_hint)
        circle = {callee for callee in calls[gvar] if gvar in _reached_from(callee, calls)}
        indirect = circle | (often & calls[gvar].keys())
        if indirect:
            out[gvar] = _IndirectCalls(indirect).visit_expr(out[gvar])
    return out


def _called_by(func: relax.Function) -> Counter[tvm.ir.GlobalVar]:
    """How often a function calls others by name, in branches and local functions as well."""
    calls = (expr for expr in expressions_of(func) if isinstance(expr, relax.Call))
    return Counter(call.op for call in calls if isinstance(call.op, tvm.ir.GlobalVar))


def _reached_from(
    start: tvm.ir.GlobalVar, calls: dict[tvm.ir.GlobalVar, Counter[tvm.ir.GlobalVar]]
) -> set[tvm.ir.GlobalVar]:
    """A function and all that its calls lead to."""
    reached = {start}
    waiting = [start]
    while waiting:
        new = calls.get(waiting.pop(), Counter()).keys() - reached
        reached |= new
        waiting += new
    return reached


@mutator
class _IndirectCalls(PyExprMutator):
    """Calls some functions through variables."""

    def __init__(self, callees: set[tvm.ir.GlobalVar]) -> None:
        super().__init__()
        self._callees = callees

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if call.op not in self._callees:
            return call
        function = self.builder_.emit(call.op, call.op.name_hint)
        return relax.Call(function, call.args, call.attrs, call.ty_args, call.span)
