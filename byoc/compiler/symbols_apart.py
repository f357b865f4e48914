"""Keep loops out of TVM's fusion that need symbols which no input of theirs has.

FuseOps hands such a symbol to the function that it makes as a number, and those of extents like
``past + n`` as a shape. FuseTIR defines symbols twice where a function gets both, and stops.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax

#: As AnnotateTIROpPattern writes it: what nothing may be fused with.
_OPAQUE = 8


def symbols_apart(mod: tvm.IRModule) -> tvm.IRModule:
    """Legalise a module and mark these loops as opaque; a target must be current."""
    legal = tvm.transform.Sequential(
        [relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern()]
    )(mod)
    for gvar, func in legal.functions.items():
        if isinstance(func, tvm.tirx.PrimFunc) and _needs_more(func):
            legal[gvar] = func.with_attr("op_pattern", _OPAQUE)
    return legal


def _needs_more(func: tvm.tirx.PrimFunc) -> bool:
    """Whether a number that the loops are given stands in no extent of a tensor that they read.

    The last tensor is the one that they write.
    """
    tensors = [param for param in func.params if isinstance(param.ty, tvm.tirx.BufferType)]
    numbers = {*func.params}.difference(tensors)
    for tensor in tensors[:-1]:
        for extent in tensor.ty.shape:
            named: list[tvm.tirx.Var] = []
            tvm_ffi.structural_walk(extent, (tvm.ir.Var, named.append))
            numbers.difference_update(named)
    return bool(numbers)
