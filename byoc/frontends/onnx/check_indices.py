"""Indices that no input can make right: constants outside of their axis, any into an empty one.

More of them along an axis than it has elements, where each belongs to one of these.

And floats where ONNX has integers alone, as for the pads of Pad: a converter may round them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import defs

OF_ELEMENTS = ("GatherElements", "Scatter", "ScatterElements")
ALONG_AN_AXIS = ("Gather", *OF_ELEMENTS)
BY_POINTS = ("GatherND", "ScatterND")


def index_problem(
    op_name: str,
    shape: Sequence[int | None] | None,
    of: Sequence[int | None] | None,
    indices: np.ndarray | None,
    attributes: Mapping[str, Any],
) -> str | None:
    """Why indices of shape ``of`` lie outside of a tensor of ``shape``; None where they may not.

    Extents are None where they are unknown, ``indices`` where they are computed.
    """
    if not shape or of is None:
        return None
    if op_name in OF_ELEMENTS and len(of) == len(shape):
        along = int(attributes.get("axis", 0)) % len(shape)
        for axis, (found, most) in enumerate(zip(of, shape, strict=True)):
            if axis != along and None not in (found, most) and found > most:
                return f"has {found} indices along axis {axis} of extent {most}"
    if None in of or 0 in of:
        return None
    if op_name in ALONG_AN_AXIS:
        first = int(attributes.get("axis", 0)) % len(shape)
        points = None if indices is None else indices.reshape(-1, 1)
        count = 1
    elif op_name in BY_POINTS:
        first = int(attributes.get("batch_dims", 0)) if op_name == "GatherND" else 0
        count = of[-1]
        points = None if indices is None else indices.reshape(-1, count)
    else:
        return None
    for place, extent in enumerate(shape[first : first + count]):
        if extent == 0:
            return f"indexes axis {first + place}, which has no elements"
        if points is None or extent is None:
            continue
        column = points[:, place]
        outside = column[(column < -extent) | (column >= extent)]
        if outside.size:
            return f"index {outside[0]} lies outside of axis {first + place} of extent {extent}"
    return None


def float_problem(schema: defs.OpSchema | None, dtypes: Sequence[str | None]) -> str | None:
    """Which input of floats has to be one of integers; None where there is none."""
    if schema is None:
        return None
    for formal, dtype in zip(schema.inputs, dtypes, strict=False):
        if dtype and "float" in dtype and all("int" in kind for kind in formal.types):
            return f"{formal.name} is {dtype}; need integers"
    return None
