"""Let a compiled function refuse sizes that are too small for what it computes.

A window that is larger than its image gives an extent below 0, which the virtual machine would try
to allocate. So all extents that may be below 0 are compared, before anything is computed, with
themselves or 0, whichever is greater:

    match_cast([max(h - 2, 0)], Shape([h - 2]))
"""

from __future__ import annotations

from itertools import takewhile

import tvm
from tvm import relax, tirx

from byoc.ir.dataflow import is_candidate, with_blocks
from byoc.ir.symbols import extents_of, named_in, told_by
from codegen_cc.dim import Dim, at_most
from codegen_cc.region.relax_dims import relax_dims


def check_extents(mod: tvm.IRModule) -> tvm.IRModule:
    """Add the comparison to functions that need it; the module is not changed.

    Only extents of symbols that the parameters tell, or the casts that the function begins with,
    can be looked at beforehand.
    """
    out = mod
    for gvar, func in mod.functions.items():
        if not is_candidate(func) or not func.body.blocks:
            continue
        first, *others = func.body.blocks
        casts = list(takewhile(_defines_symbols, first.bindings))
        found = _doubtful(func, [*func.params, *(cast.var for cast in casts)])
        if found:
            zero = tirx.IntImm("int64", 0)
            given = relax.ShapeExpr([tirx.max(extent, zero) for extent in found])
            ty = relax.ShapeType(found)
            check = relax.MatchCast(relax.Var("extents", ty), given, ty)
            blocks = [
                relax.BindingBlock([*casts, check]),
                type(first)(list(first.bindings)[len(casts) :]),
                *others,
            ]
            out = mod.clone() if out is mod else out
            out[gvar] = with_blocks(func, [block for block in blocks if block.bindings])
    return out


def _defines_symbols(binding: relax.Binding) -> bool:
    """Whether a binding is one of those that ``define_symbols`` writes."""
    return isinstance(binding, relax.MatchCast) and not isinstance(binding.var, relax.DataflowVar)


def _doubtful(func: relax.Function, tellers: list[relax.Var]) -> list[tvm.ir.Expr]:
    """The extents of a function's values that are not known to be 0 or more, each once.

    Those of symbols alone that an axis of the ``tellers`` is.
    """
    known = {symbol for var in tellers for symbol in told_by(var.ty)}
    found: dict[Dim, tvm.ir.Expr] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            for ty in _tensors(binding.var.ty):
                if not known.issuperset(named_in(ty)):
                    continue
                for extent in extents_of(ty):
                    try:
                        (dim,) = relax_dims([extent])
                    except ValueError:
                        continue
                    if not at_most(0, dim):
                        found.setdefault(dim, extent)
    return list(found.values())


def _tensors(ty: tvm.ir.Type) -> list[tvm.ir.Type]:
    if isinstance(ty, relax.TupleType):
        return [inner for field in ty.fields for inner in _tensors(field)]
    return [ty]
