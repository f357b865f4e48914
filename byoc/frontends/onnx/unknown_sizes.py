"""What an import does not know, or does not keep, of the sizes of its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import tvm
from tvm import relax, tirx

from byoc.frontends.relax_functions import FLOW
from byoc.ir.symbols import extents_of
from byoc.ir.walk import bindings_of


def values_without_shape(module: tvm.IRModule) -> int:
    """How many tensors of graphs have a shape that is not known, and is not told where they arrive.

    Functions that only branch and repeat are no graphs (``Functions``).
    """
    count = 0
    for function in module.functions.values():
        if not isinstance(function, relax.Function) or FLOW in (function.attrs or {}):
            continue
        found = [binding for block in function.body.blocks for binding in block.bindings]
        told = {b.value for b in found if isinstance(b, relax.MatchCast)}
        count += sum(
            isinstance(b.var.ty, relax.TensorType)
            and not isinstance(b.var.ty.shape, relax.ShapeExpr)
            and b.var not in told
            for b in found
        )
    return count


def has_cuts(module: tvm.IRModule) -> bool:
    """Whether an extent of the main function is the larger of two."""
    return any(
        "T.max(" in str(extent)
        for binding in bindings_of(module["main"])
        for extent in extents_of(binding.var.ty)
        if not isinstance(extent, tirx.IntImm | tirx.Var)
    )


def has_fewer_axes(module: tvm.IRModule, outputs: Iterable[str], ranks: Mapping[str, int]) -> bool:
    """Whether one of the ``outputs`` of an import has fewer axes than its model declares.

    So it has where an axis that is open in the file got the size 1.
    """
    returned = module["main"].ret_ty
    types = returned.fields if isinstance(returned, relax.TupleType) else [returned]
    return any(
        isinstance(ty, relax.TensorType) and 0 <= ty.ndim < ranks.get(name, 0)
        for ty, name in zip(types, outputs, strict=False)
    )
