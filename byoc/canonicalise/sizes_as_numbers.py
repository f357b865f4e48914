"""Sizes that a network computes with as tensors: they are 0 or more."""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, array_of
from byoc.ir.pattern import call, find
from codegen_cc.dim import at_most
from codegen_cc.region.relax_dims import relax_dims

_SAME_NUMBERS = ("relax.reshape", "relax.squeeze", "relax.expand_dims")

#: What ``division_by_zero`` makes of a size that it divides by.
_NO_ZERO = call("where", call("equal", "size", 0), "one", "size")


def is_size(block: Block, expr: relax.Expr) -> bool:
    """Whether a tensor has extents, or what is computed of these, that are 0 or more."""
    while (same := block.call(expr, *_SAME_NUMBERS)) is not None:
        expr = same.args[0]
    found = block.call(expr, "relax.shape_to_tensor")
    if found is None or not isinstance(found.args[0], relax.ShapeExpr):
        return False
    try:
        dims = relax_dims(found.args[0].values)
    except ValueError:
        return False
    return all(at_most(0, dim) for dim in dims)


def is_size_above_zero(block: Block, expr: relax.Expr) -> bool:
    """Whether it is a size, with 1 in place of 0."""
    found = find(block, expr, _NO_ZERO)
    one = None if found is None else array_of(found["one"])
    return one is not None and bool((one == 1).all()) and is_size(block, found["size"])
