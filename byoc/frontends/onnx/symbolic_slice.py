"""Slices of symbolic axes, with bounds that are expressions of symbols, or that values decide."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import tvm
from tvm import relax

from byoc.frontends.onnx.tangled_extents import numbers_as_symbols
from byoc.ir.dataflow import array_of, shape_of
from codegen_cc.dim import (
    Dim,
    above_zero,
    at_most,
    backward_bounds,
    is_static,
    normal,
    slice_bounds,
    symbols,
)
from codegen_cc.region.relax_dims import relax_dims, relax_extent

Extent = Callable[[Dim], int | tvm.ir.Expr]


def sliced(
    bb: relax.BlockBuilder,
    inputs: Sequence[relax.Expr | None],
    attrs: dict[str, Any],
    extent: Extent,
    least: dict[str, int],
) -> relax.Expr | None:
    """A slice of axes or by bounds that are symbolic; what is read backward is turned round.

    TVM clamps bounds to symbolic extents by minima and maxima, of which it can prove nothing, and
    symbolic bounds to known extents not at all. ``extent`` writes a dimension as Relax has it;
    ``least`` gets what symbols have to be at least. None for what TVM's converter can do.
    """
    image, *lists = (*inputs, None, None, None, None)[:5]
    shape = shape_of(image)
    if shape is None:
        return None
    begins, ends, axes, steps = (dims_of(values) for values in lists)
    if "starts" in attrs:  # up to opset 9
        begins, ends, axes = (attrs.get(name) for name in ("starts", "ends", "axes"))
    if not begins or not ends:
        return None
    axes = [int(axis) % len(shape) for axis in axes or range(len(begins))]
    steps = [int(step) for step in steps or [1] * len(axes)]
    if 0 in steps:
        return None
    bounds_of = [_forward if step > 0 else backward_bounds for step in steps]
    wanted = list(zip(axes, steps, bounds_of, begins, ends, strict=True))
    if is_static([*shape, *begins, *ends]) and not any(
        operator.eq(*bounds(begin, end, shape[axis], step))  # TVM gives less than no elements
        for axis, step, bounds, begin, end in wanted
    ):
        return None

    def part(value: relax.Expr, axes: list[int], steps: list[int], *bounds: list[Dim]) -> Any:
        first, last = ([extent(bound) for bound in side] for side in bounds)
        taken = relax.op.strided_slice(value, axes, first, last, steps, assume_inbound=True)
        return bb.normalize(taken)

    ahead = []
    for axis, step, bounds, begin, end in wanted:
        if step > 0:
            begin = _from_the_end(begin, shape[axis], least)
        first, last = bounds(begin, end, shape[axis], step)
        length = normal(last - first)
        if step < 0 and isinstance(length, int):  # what is read alone is turned round
            own = [[normal(shape[axis] - bound)] for bound in (last, first)]
            image = bb.normalize(relax.op.flip(part(image, [axis], [1], *own), axis))
            if step == -1:
                continue
            first, last = 0, length
        elif step < 0:
            image = bb.normalize(relax.op.flip(image, axis))
        ahead.append((axis, abs(step), first, last))
    return part(image, *map(list, zip(*ahead, strict=True))) if ahead else image


def _from_the_end(begin: Dim, size: Dim, least: dict[str, int]) -> Dim:
    """The begin of a slice of the last n elements, counted from the front; others as they are.

    None of them, -0, would be all: that n has to be 1 or more is noted in ``least``.
    """
    factor, factors = sympy.sympify(begin).as_coeff_mul()
    first = normal(size + begin)
    if not (factor < 0 and len(factors) == 1 and factors[0].is_Symbol):
        return begin
    if not isinstance(size, int) and not at_most(0, first):
        return begin
    least[factors[0].name] = max(1, least.get(factors[0].name, 0))
    return first


def _forward(begin: Dim, end: Dim, size: Dim, step: int) -> tuple[Dim, Dim]:
    """The bounds of a slice; of a known size, as of a table of positions, within it.

    A call whose bounds are beyond is refused when it comes (``check_extents``): what is added to
    the slice, as a sentence to its positions, would have another length, and ONNX Runtime refuses
    it.
    """
    first, last = slice_bounds(begin, end, size, step)
    clamped = any(sympy.sympify(bound).has(sympy.Max) for bound in (first, last))
    if isinstance(size, int) and clamped:
        if at_most(0, begin) and at_most(begin, end):
            return begin, end
        if at_most(0, end) and _from_the_middle(begin, size):
            inside = size if at_most(size, end) else end
            return begin, normal(begin + above_zero(normal(inside - begin)))
    return first, last


def _from_the_middle(begin: Dim, size: int) -> bool:
    """Whether a slice begins the nearer to the front of a table, the more elements it takes.

    As of 9999 distances, -4999 to 4999, of which those of n elements begin at 5000 - n.
    """
    middle = normal(sympy.sympify(begin).subs(dict.fromkeys(symbols([begin]), 0)))
    return isinstance(middle, int) and 0 < middle <= size and bool(at_most(begin, middle))


def cut_by_values(
    bb: relax.BlockBuilder,
    inputs: Sequence[relax.Expr | None],
    variables: dict[sympy.Symbol, tvm.ir.Var],
    cuts: set[sympy.Symbol],
) -> relax.Expr | None:
    """A slice in steps of 1 along known axes, with bounds that are computed while the model runs.

        first = clamp(begin, 0, extent), count = max(clamp(end, 0, extent) - first, 0)

    are computed as well and become symbols, which ``variables`` and ``cuts`` get. None for others.
    """
    image, begins, ends, axes, steps = (*inputs, None, None, None, None)[:5]
    shape = shape_of(image)
    if shape is None or begins is None or ends is None:
        return None
    places, strides = (None if given is None else dims_of(given) for given in (axes, steps))
    lengths = {shape_of(bound) for bound in (begins, ends) if not is_given(bound)}
    if axes is not None and places is None:
        return None
    if not lengths or None in lengths or any(not isinstance(n, int) for (n,) in lengths):
        return None
    ((count,),) = lengths
    places = [int(axis) % len(shape) for axis in places or range(count)]
    if steps is not None and (strides is None or any(step != 1 for step in strides)):
        return None
    zero = relax.const(0, "int64")
    own = [relax_extent(shape[axis], variables) for axis in places]
    sizes = _integers(bb, relax.ShapeExpr(own))

    def inside(bound: relax.Expr) -> relax.Expr:
        bound = _integers(bb, bound)
        below = relax.op.less(bound, zero)
        bound = bb.normalize(relax.op.where(below, relax.op.add(bound, sizes), bound))
        return bb.normalize(relax.op.minimum(relax.op.maximum(bound, zero), sizes))

    first, last = inside(begins), inside(ends)
    long = relax.op.maximum(relax.op.subtract(last, first), zero)
    both = bb.emit(relax.op.concat([first, bb.normalize(long)], 0))
    found = numbers_as_symbols(bb, both, "cut", variables)
    cuts.update(found)
    begins = [variables[symbol] for symbol in found[:count]]
    ends = [a + variables[n] for a, n in zip(begins, found[count:], strict=True)]
    return relax.op.strided_slice(image, places, begins, ends, assume_inbound=True)


def is_given(expr: relax.Expr) -> bool:
    """Whether an input is a constant, or numbers that symbols tell."""
    return isinstance(expr, relax.ShapeExpr) or array_of(expr) is not None


def _integers(bb: relax.BlockBuilder, given: relax.Expr) -> relax.Expr:
    """Numbers, or a shape, as an int64 tensor."""
    if isinstance(given, relax.ShapeExpr):
        return bb.normalize(relax.op.shape_to_tensor(given))
    return bb.normalize(relax.op.astype(given, "int64"))


def dims_of(expr: relax.Expr | None) -> list[Dim] | None:
    """The elements of a constant or a shape; None for others."""
    if isinstance(expr, relax.ShapeExpr):
        return list(relax_dims(expr.values))
    values = None if expr is None else array_of(expr)
    return None if values is None else [int(value) for value in values.ravel()]
