"""Keep symbols that a run computes defined before they are read.

    n: Shape([n]) = match_cast(tensor_to_shape(length))
    y: [n]        = arange(0, n)

Nothing reads the variable of the cast, only its symbols, and TVM's fusion orders the bindings of a
dataflow block by their variables alone: it may put the cast last.  So a block ends behind it. It
also ends behind a comparison of extents, without which what follows might read past an end.
"""

from __future__ import annotations

import tvm
from tvm import relax

from byoc.ir.dataflow import is_candidate, substitute, variables, with_blocks


def definitions_apart(mod: tvm.IRModule) -> tvm.IRModule:
    """End dataflow blocks behind casts that define symbols or compare extents.

    The module is not changed.
    """
    out = mod.clone()
    for gvar, func in mod.functions.items():
        if not is_candidate(func) or not any(map(_defines, func.body.blocks)):
            continue
        outside: dict[relax.Expr, relax.Expr] = {}
        blocks = [part for block in func.body.blocks for part in _parts(block, outside)]
        out[gvar] = with_blocks(func, blocks)
    return out


def _defines(block: relax.BindingBlock) -> bool:
    """Whether something follows a definition in a dataflow block."""
    if not isinstance(block, relax.DataflowBlock):
        return False
    return any(map(_is_definition, block.bindings[:-1]))


def _is_definition(binding: relax.Binding) -> bool:
    """Whether symbols get what a run computed, or extents are compared."""
    return isinstance(binding, relax.MatchCast) and isinstance(binding.ty, relax.ShapeType)


def _parts(
    block: relax.BindingBlock, outside: dict[relax.Expr, relax.Expr]
) -> list[relax.BindingBlock]:
    """A block in parts, of which each but the last ends with definitions.

    ``outside`` gets the variables that other parts read, which are no longer local to one.
    """
    if not _defines(block):
        return [block]
    parts: list[list[relax.Binding]] = [[]]
    for binding in block.bindings:
        if parts[-1] and _is_definition(parts[-1][-1]) and not _is_definition(binding):
            parts.append([])
        parts[-1].append(binding)
    made = {binding.var: number for number, part in enumerate(parts) for binding in part}
    for number, part in enumerate(parts):
        for var in (var for binding in part for var in variables(binding.value)):
            if isinstance(var, relax.DataflowVar) and made.get(var, number) != number:
                outside.setdefault(var, relax.Var(var.name, var.ty))
    return [relax.DataflowBlock([_moved(b, outside) for b in part]) for part in parts]


def _moved(binding: relax.Binding, outside: dict[relax.Expr, relax.Expr]) -> relax.Binding:
    var, value = outside.get(binding.var, binding.var), substitute(binding.value, outside)
    if isinstance(binding, relax.MatchCast):
        return relax.MatchCast(var, value, binding.ty)
    return relax.VarBinding(var, value)
