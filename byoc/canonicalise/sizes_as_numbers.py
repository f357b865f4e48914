"""Sizes that a network computes with as tensors: they are 0 or more."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from byoc.ir.dataflow import Block, array_of
from byoc.ir.pattern import call, find
from codegen_cc.dim import Dim, at_most
from codegen_cc.region.relax_dims import known_dims

SAME_NUMBERS = ("relax.reshape", "relax.squeeze", "relax.expand_dims")

#: What ``division_by_zero`` makes of a size that it divides by.
_NO_ZERO = call("where", call("equal", "size", 0), "one", "size")


def extents_in(
    block: Block, expr: relax.Expr, through: Sequence[str] = SAME_NUMBERS
) -> tuple[Dim, ...] | None:
    """The extents that a tensor has, read ``through`` operators; None where it has others."""
    while (same := block.call(expr, *through)) is not None:
        expr = same.args[0]
    found = block.call(expr, "relax.shape_to_tensor")
    if found is None or not isinstance(found.args[0], relax.ShapeExpr):
        return None
    return known_dims(found.args[0])


def is_size(block: Block, expr: relax.Expr) -> bool:
    """Whether a tensor has extents, or what is computed of these, that are 0 or more."""
    dims = extents_in(block, expr)
    return dims is not None and all(at_most(0, dim) for dim in dims)


def is_size_above_zero(block: Block, expr: relax.Expr) -> bool:
    """Whether it is a size, with 1 in place of 0."""
    found = find(block, expr, _NO_ZERO)
    one = None if found is None else array_of(found["one"])
    return one is not None and bool((one == 1).all()) and is_size(block, found["size"])
