"""Sides of images that are the root of how many pixels they have together."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import sympy

from byoc.frontends.onnx.shape_elements import ShapeValue
from byoc.frontends.onnx.shape_values import root_of_square


def sides_of_square(
    node: onnx.NodeProto, operands: Sequence[ShapeValue | None]
) -> list[tuple[sympy.Symbol, sympy.Symbol]]:
    """The two symbols that have to be equal for a node to take the root of a square."""
    if node.op_type not in ("Pow", "Sqrt") or None in operands:
        return []
    pairs = [tuple(sorted(x.free_symbols, key=str)) for x in operands[0].elements.ravel()]
    return [
        pair
        for x, pair in zip(operands[0].elements.ravel(), pairs, strict=True)
        if len(pair) == 2 and root_of_square(x.xreplace({pair[1]: pair[0]})) is not None
    ]
