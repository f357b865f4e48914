"""Axes that an operator sums over: those of two operands, which have to be equally long.

Where a network's input has a name for such an axis, and a weight its size, the name is no choice:

    X [steps, batch, inputs] of an LSTM with W [directions, 4 units, 75]      inputs is 75
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from codegen_cc.dim import Dim

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


#: What two extents are by the shapes of the first two operands and the attributes.
_OF: dict[str, Callable[[Shape, Shape, Mapping[str, Any]], Pair]] = {
    "BatchNormalization": _channels,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "GRU": _recurrent,
    "Gemm": _gemm,
    "LSTM": _recurrent,
    "MatMul": _mat_mul,
    "RNN": _recurrent,
}


def contracted(
    operator: str, shapes: Sequence[Shape | None], attrs: Mapping[str, Any]
) -> list[Pair]:
    """The extents that have to be equal for an operator; none where ranks do not fit."""
    if operator not in _OF or len(shapes) < 2 or shapes[0] is None or shapes[1] is None:
        return []
    try:
        return [_OF[operator](shapes[0], shapes[1], attrs)]
    except IndexError:
        return []
