"""Axes of two operands that have to be equally long: an operator sums over them, or scales one.

Where a network's input has a name for such an axis, and a weight its size, the name is no choice:

    X [steps, batch, inputs] of an LSTM with W [directions, 4 units, 75]      inputs is 75
    X [batch, tokens, features] of a LayerNormalization with a scale [768]    features is 768
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import sympy
import tvm
from tvm import relax

from byoc.frontends.onnx.learned_axes import Unequal, size_or_pair
from byoc.ir.dataflow import array_of, shape_of
from codegen_cc.dim import Dim, same

Shape = tuple[Dim, ...]
Pair = tuple[Dim, Dim]


def _recurrent(x: Shape, w: Shape, _: Mapping[str, Any]) -> Pair:
    return x[2], w[2]


def _conv(x: Shape, w: Shape, attrs: Mapping[str, Any]) -> Pair:
    return x[1], w[1] * attrs.get("group", 1)


def _conv_transpose(x: Shape, w: Shape, _: Mapping[str, Any]) -> Pair:
    return x[1], w[0]


def _mat_mul(a: Shape, b: Shape, _: Mapping[str, Any]) -> Pair:
    return a[-1], b[-2] if len(b) > 1 else b[0]


def _gemm(a: Shape, b: Shape, attrs: Mapping[str, Any]) -> Pair:
    return a[0 if attrs.get("transA", 0) else 1], b[1 if attrs.get("transB", 0) else 0]


def _channels(x: Shape, scale: Shape, _: Mapping[str, Any]) -> Pair:
    return x[1], scale[0]


def _groups(x: Shape, scale: Shape, attrs: Mapping[str, Any]) -> Pair:
    """As many as there are groups are theirs, up to opset 20."""
    of_groups = same(scale[0], attrs.get("num_groups", 1))
    return x[1], x[1] if of_groups else scale[0]


def _normalised(x: Shape, scale: Shape, _: Mapping[str, Any]) -> Pair:
    """The last axis at which the scale does not fit; one of 1 is repeated."""
    pairs = zip(reversed(x), reversed(scale), strict=False)
    return next(((a, b) for a, b in pairs if b != 1 and not same(a, b)), (x[-1], x[-1]))


def _scaled(x: Shape, scale: Shape, attrs: Mapping[str, Any]) -> Pair:
    """The axis with a scale for each element; blocks of elements have several axes."""
    own = x[attrs.get("axis", 1)]
    return own, scale[0] if len(scale) == 1 and scale[0] != 1 else own


#: What two extents are by the shapes of the first two operands and the attributes.
_OF: dict[str, Callable[[Shape, Shape, Mapping[str, Any]], Pair]] = {
    "BatchNormalization": _channels,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DequantizeLinear": _scaled,
    "GRU": _recurrent,
    "Gemm": _gemm,
    "GroupNormalization": _groups,
    "InstanceNormalization": _channels,
    "LSTM": _recurrent,
    "LayerNormalization": _normalised,
    "MatMul": _mat_mul,
    "QuantizeLinear": _scaled,
    "RMSNormalization": _normalised,
    "RNN": _recurrent,
}


def note_contracted(
    operator: str,
    inputs: Sequence[relax.Expr | None],
    attrs: Mapping[str, Any],
    unequal: Unequal,
    symbols: Collection[sympy.Symbol],
) -> None:
    """Add extents that have to be equal to ``unequal``, where they are not for all sizes.

    Raises ``ValueError`` where it is for some sizes only, as nothing would check that later: for a
    number, or two of the inputs' own ``symbols``.
    """
    pair = _split(inputs, attrs) if operator == "Split" else _of_shapes(operator, inputs, attrs)
    if pair is None:
        return
    a, b = pair
    if same(a, b) or (isinstance(a, int) and isinstance(b, int)):  # which the converter says
        return
    unequal.append(size_or_pair(a, b))
    if any(isinstance(x, int) for x in (a, b)) or (a in symbols and b in symbols):
        raise ValueError(f"{operator} pairs {a} and {b} elements; need equally many")


def _of_shapes(
    operator: str, inputs: Sequence[relax.Expr | None], attrs: Mapping[str, Any]
) -> Pair | None:
    shapes = shapes_of((*inputs, None, None)[:2])
    if operator not in _OF or None in shapes:
        return None
    try:
        return _OF[operator](*shapes, attrs)
    except IndexError:  # ranks do not fit
        return None


def _split(inputs: Sequence[relax.Expr | None], attrs: Mapping[str, Any]) -> Pair | None:
    """An axis is as long as its parts are together; up to opset 12 their sizes are an attribute."""
    sizes = attrs.get("split")
    if len(inputs) > 1 and isinstance(inputs[1], tvm.ir.GenericConst):
        sizes = array_of(inputs[1])
    (shape,) = shapes_of(inputs[:1])
    axis = attrs.get("axis", 0)
    if sizes is None or shape is None or not -len(shape) <= axis < len(shape):
        return None
    return shape[axis], int(sum(sizes))


def shapes_of(inputs: Sequence[relax.Expr | None]) -> list[Shape | None]:
    """The shapes of operands; none of those that are no tensors."""
    return [
        shape_of(x) if isinstance(getattr(x, "ty", None), relax.TensorType) else None
        for x in inputs
    ]
