"""Let ``take`` itself count negative indices from the end, which kernels do and TVM in one mode.

take(x, where(i < 0, i + n, i))  =  take(x, i, mode="wrap")      n: the extent of the axis
"""

from __future__ import annotations

from tvm import relax

from byoc.canonicalise.sizes_as_numbers import SAME_NUMBERS, extents_in
from byoc.ir.dataflow import Block, array_of, shape_of
from byoc.ir.pattern import call, find
from codegen_cc.dim import Dim, same

COUNTED = call("where", call("less", "i", 0.0), call("add", "i", "extent"), "i")


def take_from_the_end(block: Block) -> None:
    """Rewrite indices that were counted before; ``mode="wrap"`` is for the rest of the integers."""
    for var, taken in block.calls("relax.take"):
        shape = shape_of(taken.args[0])
        found = find(block, taken.args[1], COUNTED)
        if found is None or not shape or taken.attrs.axis is None or taken.attrs.mode == "nan":
            continue
        axis, indices = int(taken.attrs.axis) % len(shape), found["i"]
        if shape_of(indices) != shape_of(taken.args[1]):
            continue
        if _is_extent(block, found["extent"], shape[axis]):
            block.replace(var, relax.op.take(taken.args[0], indices, axis, mode="wrap"))


def _is_extent(block: Block, expr: relax.Expr, extent: Dim) -> bool:
    """Whether an expression is one number, that of an axis of fixed or of symbolic extent."""
    known = array_of(expr)
    if known is not None:
        return known.size == 1 and known.item() == extent
    dims = extents_in(block, expr, (*SAME_NUMBERS, "relax.astype"))
    return dims is not None and len(dims) == 1 and same(dims[0], extent)
