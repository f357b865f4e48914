"""What has to be equal for a node on shapes to have a value that no other size contradicts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from byoc.frontends.onnx.learned_axes import Dividend, Unequal
from byoc.frontends.onnx.shape_elements import ShapeValue
from byoc.frontends.onnx.shape_values import root_of_square
from codegen_cc.dim import above_zero


def wanted_for(node: onnx.NodeProto, operands: Sequence[ShapeValue | None]) -> Unequal:
    """The pairs that have to be equal for a node that has no value to get one."""
    if None in operands:
        return []
    if node.op_type in ("Pow", "Sqrt"):
        return _sides_of_squares(operands[0])
    return _not_below_zero(*operands) if node.op_type == "Div" else []


def _sides_of_squares(number: ShapeValue) -> Unequal:
    """The two sides of each image that is a square where it has a root: how many pixels it has."""
    pairs = [tuple(sorted(x.free_symbols, key=str)) for x in number.elements.ravel()]
    return [
        pair
        for x, pair in zip(number.elements.ravel(), pairs, strict=True)
        if len(pair) == 2 and root_of_square(x.xreplace({pair[1]: pair[0]})) is not None
    ]


def _not_below_zero(above: ShapeValue, below: ShapeValue) -> Unequal:
    """Dividends of whole quotients: those below 0 are rounded up, others down."""
    shape = np.broadcast_shapes(above.elements.shape, below.elements.shape)
    pairs = zip(*(np.broadcast_to(of.elements, shape).flat for of in (above, below)), strict=True)
    return [
        Dividend(x, above_zero(x))
        for x, y in pairs
        if x.is_integer and x.free_symbols and y.is_Integer and y > 0
    ]
