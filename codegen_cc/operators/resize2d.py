"""resize2d: which pixels an output pixel is mixed from, and by which weights, is tabulated here.

The definitions are those of ``tvm.topi.image.resize2d``, in fp32 as there, so that a network gives
the same pixels whichever side runs the operator.  A node that is ``divided`` has the positions of
ONNX Runtime instead: those divide by the scale where TVM multiplies by its inverse, and where a
position falls between two pixels, the last bit decides which one is nearest.  Rows and columns have
tables of their own; where extents are symbolic, ``ext_resize_taps`` fills the same tables at the
call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen_cc.dim import Dim
from codegen_cc.dtypes import SINGLE
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Layout, Operator
from codegen_cc.operators.dtype_rules import only_single
from codegen_cc.operators.image_facts import dense_images
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import CHANNELS_LAST, Tensor
from codegen_cc.region.graph import RegionNode

#: Pixels along an axis that an output pixel is mixed from.
TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
COORDINATES = (
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
)
ROUNDINGS = ("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
#: Rounded down without anything added, as PyTorch does; TVM has no such rounding.
FLOOR_EXACT = "floor_exact"
#: Added before a floor (taken away before a ceil), against a position that rounded to just below.
_EPSILON = np.float32(1e-5)
#: Positions this far from the middle between two pixels are in the middle for ONNX Runtime.
TIE = np.float32(1e-6)

Floats = npt.NDArray[np.float32]
Table = tuple[npt.NDArray[np.int32], Floats]


def supports(node: Node) -> str | None:
    """None if the kernel can compute the node, else the reason."""
    attrs, shape = node.attrs, node.operand("input").shape
    if len(shape) != 4:
        return f"input rank {len(shape)}; need 4"
    if 0 in shape[2:]:
        return f"input {list(shape)}; need a pixel at least"
    for name, known in (
        ("method", tuple(TAPS)),
        ("coordinate", COORDINATES),
        ("rounding", (*ROUNDINGS, FLOOR_EXACT)),
    ):
        if attrs[name] not in known:
            return f"{name} {attrs[name]!r}; need one of {', '.join(filter(None, known))}"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_resize2d`` with tables of rows and columns."""
    x = builder.dense(builder.tensor(node.role("input")), CHANNELS_LAST)
    y = builder.space(node.node.shape, node.node.dtype, CHANNELS_LAST)
    rows, columns = (
        _tables(builder, x.shape[axis], y.shape[axis], node.node.attrs) for axis in (2, 3)
    )
    fields: dict[str, object] = {
        **dense_images(x, y),
        "taps_h": rows[0].shape[1],
        "taps_w": columns[0].shape[1],
    }
    method = node.node.attrs["method"]
    comment = f"{node.node.composite} {method}: {list(x.shape)} -> {list(y.shape)}"
    arguments = [Struct("ext_resize2d_params", fields), *rows, *columns, x, y]
    builder.call("ext_resize2d", arguments, y, comment)
    builder.place(node.output, y)


def _tables(
    builder: PlanBuilder, size: Dim, target: Dim, attrs: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """Indices and weights of one axis: constants, or filled by a call of their own."""
    if isinstance(size, int) and isinstance(target, int):
        at, weights = taps_of(size, target, attrs)
        return builder.constant(at), builder.constant(weights)
    shape = (target, TAPS[attrs["method"]])
    table = builder.space(shape, "int32"), builder.space(shape, SINGLE)
    fields: dict[str, object] = {
        "extent": size,
        "count": target,
        "method": f"EXT_RESIZE_{attrs['method'].upper()}",
        "coordinates": f"EXT_RESIZE_{attrs['coordinate'].upper()}",
        "rounding": f"EXT_RESIZE_{_rounding(attrs).upper()}",
        "cubic_alpha": float(attrs["cubic_alpha"]),
        "cubic_exclude": int(attrs["cubic_exclude"]),
        "divided": int(attrs["divided"]),
    }
    arguments = [Struct("ext_resize_taps_params", fields), *table]
    builder.call("ext_resize_taps", arguments, table[0], f"taps of an axis: {size} -> {target}")
    return table


def _rounding(attrs: dict[str, Any]) -> str:
    """How a nearest position is rounded if nothing is said."""
    default = "round" if attrs["coordinate"] == "align_corners" else "floor"
    return attrs["rounding"] or default


def taps_of(size: int, target: int, attrs: dict[str, Any]) -> Table:
    """Indices and weights, both [target, taps], along an axis of ``size`` elements."""
    method = attrs["method"]
    if method == "nearest":
        at = _nearest(size, target, attrs)[:, None]
        weights = np.ones(at.shape, np.float32)
    else:
        position = _positions(size, target, attrs)
        first = np.floor(position)
        fraction = position - first
        if method == "linear":
            at = first.astype(np.int32)[:, None] + np.arange(2, dtype=np.int32)
            weights = np.stack([np.float32(1) - fraction, fraction], axis=1)
        else:
            at = first.astype(np.int32)[:, None] + np.arange(-1, 3, dtype=np.int32)
            weights = _cubic(fraction, np.float32(attrs["cubic_alpha"]))
            if attrs["cubic_exclude"]:
                weights[(at < 0) | (at >= size)] = 0
                weights = weights / weights.sum(axis=1, keepdims=True, dtype=np.float32)
    return np.clip(at, 0, size - 1).astype(np.int32), weights.astype(np.float32)


def _positions(size: int, target: int, attrs: dict[str, Any]) -> Floats:
    """Where each output element lies on the input's axis."""
    coordinate = attrs["coordinate"]
    if attrs["divided"]:
        return _divided_positions(size, target, coordinate)
    x = np.arange(target, dtype=np.float32)
    scale, half = np.float32(size) / np.float32(max(target, 1)), np.float32(0.5)
    if coordinate == "align_corners":  # a single element is the first one
        return x * (np.float32(size - 1) / np.float32(max(target - 1, 1)))
    if coordinate == "asymmetric":
        return x * scale
    if coordinate == "tf_half_pixel_for_nn":
        return (x + half) * scale
    if coordinate == "pytorch_half_pixel" and target <= 1:
        return np.zeros(target, np.float32)
    return (x + half) * scale - half


def _divided_positions(size: int, target: int, coordinate: str) -> Floats:
    """The same, as ONNX Runtime computes them."""
    x, half = np.arange(target, dtype=np.float32), np.float32(0.5)
    scale = np.float32(target) / np.float32(size)
    if coordinate == "align_corners":
        return x * np.float32(size - 1) / np.float32(max(target - 1, 1))
    if coordinate == "asymmetric":
        return x / scale
    if coordinate == "tf_half_pixel_for_nn":
        return (x + half) / scale
    if coordinate == "pytorch_half_pixel" and target <= 1:
        return np.zeros(target, np.float32)
    return (x + half) / scale - half


def _nearest(size: int, target: int, attrs: dict[str, Any]) -> npt.NDArray[np.int32]:
    coordinate, rounding = attrs["coordinate"], _rounding(attrs)
    if attrs["divided"]:
        return _nearest_exactly(_positions(size, target, attrs), rounding)
    if coordinate == "asymmetric" and rounding == "floor" and _divides(size, target):
        return (np.arange(target) // (target // size)).astype(np.int32)
    position, half = _positions(size, target, attrs), np.float32(0.5)
    rounded = {
        "round": lambda: np.rint(position),
        "round_prefer_floor": lambda: np.ceil(position - half),
        "round_prefer_ceil": lambda: np.floor(position + half),
        "floor": lambda: np.floor(position + _EPSILON),
        FLOOR_EXACT: lambda: np.floor(position),
        "ceil": lambda: np.ceil(position - _EPSILON),
    }
    return rounded[rounding]().astype(np.int32)


def _nearest_exactly(position: Floats, rounding: str) -> npt.NDArray[np.int32]:
    """ONNX Runtime's roundings, which add nothing to a position, and know ties to ``TIE``."""
    low = np.floor(position)
    past_half = position - low - np.float32(0.5)
    rounded = {
        "round": lambda: np.rint(position),
        "round_prefer_floor": lambda: low + (past_half > TIE),
        "round_prefer_ceil": lambda: low + (past_half >= -TIE),
        "floor": lambda: low,
        FLOOR_EXACT: lambda: low,
        "ceil": lambda: np.ceil(position),
    }
    return rounded[rounding]().astype(np.int32)


def is_as_tvm(node: Node) -> bool:
    """Whether TVM's arithmetic picks the same pixels, or mixes them alike."""
    attrs = node.attrs
    if attrs["rounding"] == FLOOR_EXACT:
        return False
    if not attrs["divided"] or attrs["method"] != "nearest":
        return True
    pairs = list(zip(node.operand("input").shape[2:], node.shape[2:], strict=True))
    if not all(isinstance(extent, int) and extent for pair in pairs for extent in pair):
        return False
    tables = [
        [taps_of(size, target, {**attrs, "divided": divided})[0] for divided in (False, True)]
        for size, target in pairs
    ]
    return all(np.array_equal(*table) for table in tables)


def _divides(size: int, target: int) -> bool:
    """Whether TVM divides integers instead of multiplying by a fraction."""
    factor = target / size
    return factor % 1 == 0 and factor <= 1 / (_EPSILON * size + _EPSILON)


def _cubic(t: Floats, alpha: np.float32) -> Floats:
    """Weights of the four neighbours of a position ``t`` past the second one (Keys, 1981)."""
    square, cube = t * t, t * t * t
    return np.stack(
        [
            alpha * (cube - 2 * square + t),
            (alpha + 2) * cube - (3 + alpha) * square + 1,
            -(alpha + 2) * cube + (3 + 2 * alpha) * square - alpha * t,
            -alpha * cube + alpha * square,
        ],
        axis=1,
    )


# ---------------------------------------------------------------- the record

_ATTRIBUTES = {
    "method": "nearest, linear or cubic",
    "coordinate": "how positions are transformed, as relax.image.resize2d has it",
    "rounding": "of positions, for nearest",
    "cubic_alpha": "a number",
    "cubic_exclude": "whether pixels outside have no weight",
    "divided": "whether positions are divided by the scale, as ONNX Runtime does",
}


def _samples() -> Iterator[Sample]:
    image = {"input": ((1, 16, 8, 8), REAL)}
    attrs = {"coordinate": "half_pixel", "rounding": "", "cubic_alpha": -0.5, "cubic_exclude": 0}
    attrs["divided"] = False
    for method in TAPS:
        node = sample_node("resize2d", image, (1, 16, 16, 16), **attrs, method=method)
        yield Sample(method, node)


RESIZE2D = Operator(
    "resize2d",
    roles=("input",),
    attributes=_ATTRIBUTES,
    about="to the size of the result",
    layout=Layout.IMAGE,
    facts=Facts(ranks={"input": 4}, told_by=dict.fromkeys(_ATTRIBUTES, ())),
    kernels=Kernels(lower, only_single, supports),
    samples=_samples,
)

OPERATORS = (RESIZE2D,)
