"""Distances of all rows of a matrix from all rows of another, as broadcasting computes them.

    sum((x [n, d, 1] - y [1, d, m])^2, 1)       or with |x - y|, and axes in any order

The differences, n d m of them, would be larger than all else of the network.
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, dtype_of, shape_of
from byoc.ir.pattern import call, either, find, times
from byoc.patterns.row import Candidate, integers, tensor
from codegen_cc.dim import same
from codegen_cc.node import Node

_DIFFERENCE = call("subtract", "a", "b", name="difference")
_SQUARES = either(
    times(_DIFFERENCE, "difference"),
    call("power", _DIFFERENCE, 2.0),
    call("square", _DIFFERENCE),
)
_OF = either(
    call("sum", _SQUARES, name="squares"),
    call("sum", call("abs", _DIFFERENCE), name="absolute"),
)


#: A candidate and the bindings that it stands for.
Distances = tuple[Candidate, tuple[relax.Expr, ...]]


def distances(block: Block, var: relax.Var) -> Distances | None:
    """The sums of differences that end in ``var``; None for other sums."""
    found = find(block, var, _OF)
    attrs = block.values[var].attrs
    if found is None or attrs.keepdims or attrs.axis is None:
        return None
    shapes = shape_of(found["a"]), shape_of(found["b"])
    summed = integers(attrs.axis)
    if None in shapes or {len(shape) for shape in shapes} not in ({3}, {2, 3}) or len(summed) != 1:
        return None
    shapes = [(1,) * (3 - len(shape)) + shape for shape in shapes]
    axis = summed[0] % 3
    first, second = (other for other in range(3) if other != axis)
    a, b = found["a"], found["b"]
    if not (same(shapes[0][second], 1) and same(shapes[1][first], 1)):
        a, b = b, a
    shape = shape_of(var)
    if shape is None or any(same(extent, 1) for extent in shape):
        return None
    kind = "squares" if found.get("squares") is not None else "absolute"
    operands = (tensor(a, "rows"), tensor(b, "columns"))
    node = Node("distances", operands, shape, dtype_of(var), {"kind": kind, "axis": axis})
    return Candidate(node, (a, b)), found.bindings
