"""Range, Tile and Flatten whose operands or extents are arithmetic on symbols."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import sympy
import tvm
from tvm import relax

from byoc.canonicalise.fold_constants import FOLDERS, GENERATORS
from byoc.frontends.onnx.learned_axes import Steps, Unequal
from byoc.frontends.onnx.shape_elements import ShapeValue
from byoc.frontends.onnx.symbolic_slice import Extent, dims_of
from byoc.ir.dataflow import array_of, bound, op_name, scalar_of, shape_of
from codegen_cc.dim import above_zero, at_most, ceil_div, is_static, normal, product

#: Operators that fill a shape with a number, and which operand that is.
_FILLINGS = {"relax.broadcast_to": 0, "relax.full": 1}

#: Operators of a condition that is decided when compiling.
_COMPARISONS = frozenset(
    f"relax.{name}" for name in ("equal", "greater", "greater_equal", "less", "less_equal")
)
#: Most elements of such a condition.
_MOST_KNOWN = 1 << 16


def counted(
    bb: relax.BlockBuilder,
    operands: Sequence[ShapeValue],
    extent: Extent,
    tensor: Callable[[ShapeValue], relax.Expr],
    extents: Collection[sympy.Expr] = (),
) -> relax.Expr | None:
    """Range(start, limit, step): step * arange(number of steps) + start.

    Steps may go down, as those of relative positions do (l - 1, l - 2, ... 1 - l). From a symbolic
    start on in steps of 1 they are the last ones of 0, 1, ... limit - 1.
    ``tensor`` writes a value as one; ``extents`` are those of tensors, which the run refuses below
    0 even where nothing shows that they are not. None where TVM's converter has to do.
    """
    start, limit, step = (operand.elements.reshape(()).item() for operand in operands)
    count = _steps(operands)
    if count is None or not (count in extents or at_most(0, count)):
        return None
    dtype = operands[0].dtype
    if not start.is_number and step == 1 and at_most(0, start):
        numbers = bb.emit(relax.op.arange(0, extent(limit), 1, dtype))
        bounds = [extent(start)], [extent(limit)]
        return bb.normalize(relax.op.strided_slice(numbers, [0], *bounds, assume_inbound=True))
    numbers = relax.op.arange(0, extent(count), 1, dtype)
    if step != 1:
        numbers = relax.op.multiply(numbers, relax.const(number(step, dtype), dtype))
    if start != 0:
        numbers = relax.op.add(numbers, tensor(operands[0]))
    return bb.normalize(numbers)


def _steps(operands: Sequence[ShapeValue]) -> sympy.Expr | None:
    """How many steps a range takes, below 0 where it is empty; None for what no number tells.

    The last step may be cut short: from 0 to n in steps of 2, or from 0.5 to n in steps of 1.
    """
    start, limit, step = (operand.elements.reshape(()).item() for operand in operands)
    if not (step.is_number and step.is_nonzero):
        return None
    gap = sympy.expand(limit - start)
    count = sympy.expand(gap / step)
    part, whole = count.as_coeff_Add()
    if whole.is_integer:
        return sympy.expand(whole + sympy.ceiling(part))
    if not (step.is_Integer and gap.is_integer):
        return None
    return sympy.sympify(ceil_div(gap if step > 0 else -gap, abs(int(step))))


def no_shorter(operands: Sequence[ShapeValue]) -> Unequal:
    """What has to be equal for a range to have as many elements as the numbers say."""
    count = _steps(operands)
    return [] if count is None or at_most(0, count) else [Steps(count, above_zero(count))]


def places_of_all(bb: relax.BlockBuilder, operand: relax.Expr) -> relax.Expr | None:
    """NonZero of a vector of open length that is filled with one number, as older exporters wrote
    a range: 0, 1, ... in one row; or of what is known, as the places that every number is repeated
    to. None for others."""
    known = _known(bb, operand)
    if known is not None:
        return relax.const(np.array(np.nonzero(known), np.int64), "int64")
    value = bound(bb, operand)
    shape = shape_of(operand)
    if op_name(value) not in _FILLINGS or shape is None or len(shape) != 1 or is_static(shape):
        return None
    filling = scalar_of(value.args[_FILLINGS[op_name(value)]])
    if not filling:  # no constant, or 0
        return None
    numbers = bb.emit(relax.op.arange(0, operand.ty.shape.values[0], 1, "int64"))
    return relax.op.expand_dims(numbers, 0)


def _known(bb: relax.BlockBuilder, operand: relax.Expr) -> np.ndarray | None:
    """A constant, or what a comparison of constants and counted numbers gives."""
    value = bound(bb, operand)
    shape = shape_of(operand)
    if shape is None or not is_static(shape) or product(shape) > _MOST_KNOWN:
        return None
    if isinstance(value, tvm.ir.GenericConst):
        return array_of(value)
    if op_name(value) == "relax.arange":
        return GENERATORS["relax.arange"](value, [])
    if op_name(value) not in _COMPARISONS:
        return None
    sides = [_known(bb, side) for side in value.args]
    return None if any(side is None for side in sides) else FOLDERS[op_name(value)](value, sides)


def number(element: sympy.Expr, dtype: str) -> float | int:
    """A number in a dtype."""
    return float(element) if dtype.startswith("float") else int(element)


def tiled(
    bb: relax.BlockBuilder, inputs: Sequence[relax.Expr | None], extent: Extent
) -> relax.Expr | None:
    """Tile, so many times along each axis; None for what TVM's converter can do."""
    source, shape, repeats = inputs[0], shape_of(inputs[0]), inputs[1]
    if isinstance(repeats, relax.Call) and op_name(repeats) == "relax.shape_to_tensor":
        repeats = repeats.args[0]  # TVM's loop over nodes makes tensors of shapes
    times = dims_of(repeats)
    if shape is None or times is None or len(times) != len(shape):
        return None
    if is_static([*times, *shape]):
        return None

    def sized(operator: object, value: relax.Expr, dims: Sequence[object]) -> relax.Expr:
        return bb.normalize(operator(value, relax.ShapeExpr([extent(dim) for dim in dims])))

    pairs = list(zip(times, shape, strict=True))
    ones, wide = (
        [dim for count, own in pairs for dim in ((own,) if count == 1 else (first or count, own))]
        for first in (1, 0)
    )
    apart = sized(relax.op.reshape, source, ones)
    repeated = sized(relax.op.broadcast_to, apart, wide)
    return sized(relax.op.reshape, repeated, [normal(count * own) for count, own in pairs])


def flattened(
    inputs: Sequence[relax.Expr], attrs: dict[str, int], extent: Extent
) -> relax.Expr | None:
    """Flatten of open axes: TVM's divides, so that nothing tells that the quotient is exact."""
    shape = shape_of(inputs[0])
    if shape is None or is_static(shape):
        return None
    axis = attrs.get("axis", 1)
    cut = axis + len(shape) if axis < 0 else axis
    sides = [product(shape[:cut]), product(shape[cut:])]
    return relax.op.reshape(inputs[0], relax.ShapeExpr([extent(side) for side in sides]))
