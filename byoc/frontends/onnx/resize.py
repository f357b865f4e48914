"""ONNX's Resize along axes of fixed extents, every form of it.

A resize works on one axis after another, and on each it is a fixed linear map: for every output
position some input positions and their weights. These are computed here, in float64, as the
operator's specification says (onnx.ai, Resize-19), and positions in fp32, as ONNX Runtime does: its
divisions, in its order, so that the nearest pixel is the one that it finds. Images in forms that
``relax.image.resize2d`` computes alike go there, where a kernel is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from byoc.frontends.onnx.symbolic_resize import (
    FIRST_WITH_MODES,
    IMAGE,
    METHODS,
    VOLUME,
    resize_options,
    scaled,
)
from byoc.ir.dataflow import array_of, shape_of
from byoc.ir.resized_volume import resized_volume
from codegen_cc.dim import Dim, is_static, same
from codegen_cc.operators.resize2d import TIE
from codegen_cc.region.relax_dims import relax_dims

#: Coordinate transformations that ``relax.image.resize2d`` has.
OF_RELAX = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")

#: More taps than this are a product with a matrix instead of a sum.
MAX_TAPS = 8


@dataclass(frozen=True)
class Axis:
    """How one axis is resized."""

    axis: int
    size: Dim
    result: Dim
    scale: float
    #: First and last position of the region of interest, as shares of the axis.
    region: tuple[float, float] = (0.0, 1.0)

    @property
    def is_symbolic(self) -> bool:
        """Whether a symbol is in its sizes, and not the same one in both."""
        return not is_static((self.size, self.result)) and not self._is_kept

    @property
    def _is_kept(self) -> bool:
        return same(self.size, self.result) and self.scale == 1 and self.region == (0.0, 1.0)

    @property
    def is_even(self) -> bool:
        """Whether the ratio of the sizes is the scale: what needs no other than the sizes."""
        if self._is_kept:
            return True
        return self.region == (0.0, 1.0) and np.float32(self.scale) == np.float32(
            self.result / self.size
        )


def resize(
    bb: relax.BlockBuilder, inputs: Sequence[relax.Expr | None], attrs: dict[str, Any], opset: int
) -> relax.Expr:
    """Convert Resize, or Upsample with ``opset`` 0, where axes that change have fixed extents.

    Raises ``ValueError`` where sizes or scales are computed, and for integers that would have to be
    interpolated.
    """
    image, shape = inputs[0], shape_of(inputs[0])
    axes = axes_of(shape, inputs, attrs, opset)
    options = _Options.of(attrs, opset)
    if options.coordinates == "align_corners" and not options.antialias:
        # The sizes tell all positions, in ONNX Runtime and PyTorch. ONNX's reference takes the
        # product of size and scale, with its fraction.
        axes = [replace(axis, scale=_ratio(axis.result, axis.size)) for axis in axes]
    if 0 in shape or any(axis.result == 0 for axis in axes):
        sizes = list(image.ty.shape.values)
        for axis in axes:
            if is_static((axis.result,)):
                sizes[axis.axis] = axis.result
        return relax.op.zeros(tuple(sizes), str(image.ty.dtype))
    changed = [a for a in axes if not (a.is_even and same(a.size, a.result))]
    if options.coordinates == "align_corners" and not all(axis.is_even for axis in changed):
        raise ValueError(
            "align_corners, antialias and a scale that gives no whole number, of which ONNX Runtime"
            " keeps the whole part and ONNX's reference does not; need sizes"
        )
    if _is_relax_image(image, changed, options):
        results = {axis.axis: axis.result for axis in changed}
        size = [results.get(i, extent) for i, extent in enumerate(image.ty.shape.values)][2:]
        told = resize_options(attrs, opset)
        if image.ty.ndim == VOLUME:
            return resized_volume(image, size, told)
        return relax.op.image.resize2d(image, size=relax.ShapeExpr(size), **told)
    if options.mode != b"nearest" and not str(image.ty.dtype).startswith("float"):
        raise ValueError(f"{options.mode.decode()} of {image.ty.dtype}; need floating point")
    if any(axis.region != (0.0, 1.0) and axis.scale == 1 for axis in axes):
        raise ValueError("a crop of an axis that keeps its size, which ONNX Runtime does not crop")
    outside = []
    for axis in changed:
        positions = options.positions(axis)
        beyond = (positions < 0) | (positions > axis.size - 1)
        if options.coordinates == "tf_crop_and_resize" and beyond.any():
            outside.append(beyond.reshape([-1 if i == axis.axis else 1 for i in range(len(shape))]))
        image = bb.normalize(_along(image, axis, *options.taps(axis, positions)))
    for beyond in outside:
        value = relax.const(options.extrapolation, str(image.ty.dtype))
        image = bb.normalize(relax.op.where(relax.const(beyond), value, image))
    return image


def axes_of(
    shape: Sequence[Dim],
    inputs: Sequence[relax.Expr | None],
    attrs: Mapping[str, Any],
    opset: int,
) -> list[Axis]:
    """What becomes of each axis, those first that shrink most.

    Raises ``ValueError`` where sizes or scales are computed, or give a symbolic extent that is no
    whole number for every value of its symbols.
    """
    numbers = [None if expr is None else _numbers(expr) for expr in list(inputs)[1:]]
    numbers += [None] * (3 - len(numbers))
    if opset < FIRST_WITH_MODES:  # scales are the second input, or an attribute
        numbers = [None, attrs.get("scales") or numbers[0], None]
    roi, scales, sizes = (None if n is None or len(n) == 0 else list(n) for n in numbers)
    if (scales is None) == (sizes is None):
        raise ValueError("needs scales or sizes, and not both, as constants")
    axes = [axis % len(shape) for axis in attrs.get("axes", range(len(shape)))]
    regions = [(0.0, 1.0)] * len(axes)
    if attrs.get("coordinate_transformation_mode") == b"tf_crop_and_resize":
        if roi is None:
            raise ValueError("tf_crop_and_resize needs a region of interest as a constant")
        regions = list(zip(roi[: len(axes)], roi[len(axes) :], strict=True))
    if sizes is not None:
        policy = attrs.get("keep_aspect_ratio_policy", b"stretch")
        pairs = zip(sizes, axes, strict=True)
        ratios = [_ratio(size, shape[axis]) for size, axis in pairs]
        if policy != b"stretch":
            if not is_static((*sizes, *(shape[axis] for axis in axes))):
                raise ValueError(f"keep_aspect_ratio_policy {policy.decode()} of symbolic extents")
            ratio = np.float32(min(ratios) if policy == b"not_larger" else max(ratios))
            ratios = [float(ratio)] * len(axes)
            sizes = [np.floor(float(ratio * np.float32(shape[axis])) + 0.5) for axis in axes]
        found = [
            Axis(axis, shape[axis], size if isinstance(size, Dim) else int(size), ratio, region)
            for axis, size, ratio, region in zip(axes, sizes, ratios, regions, strict=True)
        ]
    else:
        found = []
        for axis, scale, region in zip(axes, scales, regions, strict=True):
            found.append(Axis(axis, shape[axis], scaled(shape[axis], scale, axis), scale, region))
    given = {axis.axis for axis in found}
    rest = [Axis(i, extent, extent, 1.0) for i, extent in enumerate(shape) if i not in given]
    return sorted([*found, *rest], key=lambda axis: _ratio(axis.result, axis.size))


def _ratio(size: Dim | float, extent: Dim) -> float:
    """Of an axis of no elements, or of one whose size is a symbol, 1."""
    fixed = is_static((size, extent)) if isinstance(size, Dim) else is_static((extent,))
    return float(size / extent) if fixed and extent else 1.0


def _numbers(expr: relax.Expr) -> list[Dim | float]:
    """Values of a constant, extents of a shape. Raises ``ValueError`` for what is computed."""
    if isinstance(expr, relax.ShapeExpr):
        return list(relax_dims(expr.values))
    values = array_of(expr) if isinstance(expr, tvm.ir.GenericConst) else None
    if values is None:
        raise ValueError("a region, scales or sizes that are computed; need constants")
    return values.ravel().tolist()


def _is_relax_image(image: relax.Expr, changed: Sequence[Axis], options: _Options) -> bool:
    """Whether ``relax.image.resize2d`` gives the same, and has a kernel."""
    return (
        image.ty.ndim in (IMAGE, VOLUME)
        and bool(changed)
        and all(axis.axis >= 2 and axis.is_even for axis in changed)
        and options.coordinates in OF_RELAX
        and not options.antialias
        and (options.rounding != "up_if_smaller" or all(axis.scale > 1 for axis in changed))
        and (options.coordinates != "pytorch_half_pixel" or all(a.result > 1 for a in changed))
        and str(image.ty.dtype) == "float32"
    )


@dataclass(frozen=True)
class _Options:
    mode: bytes
    coordinates: str
    rounding: str
    alpha: float
    exclude: bool
    antialias: bool
    extrapolation: float

    @classmethod
    def of(cls, attrs: Mapping[str, Any], opset: int) -> _Options:
        """Read a node's attributes, with the defaults of its opset."""
        mode = attrs.get("mode", b"nearest")
        if mode not in METHODS:
            raise ValueError(f"mode {mode.decode()}; need one of nearest, linear, cubic")
        old = opset < FIRST_WITH_MODES
        coordinates = b"asymmetric" if old else b"half_pixel"
        rounding = b"up_if_smaller" if old else b"round_prefer_floor"
        return cls(
            mode,
            attrs.get("coordinate_transformation_mode", coordinates).decode(),
            attrs.get("nearest_mode", rounding).decode(),
            attrs.get("cubic_coeff_a", -0.75),
            bool(attrs.get("exclude_outside", 0)),
            bool(attrs.get("antialias", 0)),
            attrs.get("extrapolation_value", 0.0),
        )

    def positions(self, axis: Axis) -> np.ndarray:
        """Positions in the input, [results], in fp32."""
        f32 = np.float32
        at, size, result, scale = (
            np.arange(axis.result, dtype="f4"),
            axis.size,
            axis.result,
            f32(axis.scale),
        )
        begin, end = map(f32, axis.region)
        if self.coordinates == "half_pixel" or (
            self.coordinates == "pytorch_half_pixel" and result > 1
        ):
            return (at + f32(0.5)) / scale - f32(0.5)
        if self.coordinates == "pytorch_half_pixel":
            return np.zeros(result, "f4")
        if self.coordinates == "tf_half_pixel_for_nn":  # ONNX had it in opset 11 alone
            return (at + f32(0.5)) / scale
        if self.coordinates == "asymmetric":
            return at / scale
        if self.coordinates == "align_corners":
            return at * f32(size - 1) / f32(result - 1) if result > 1 else np.zeros(result, "f4")
        if self.coordinates == "half_pixel_symmetric":
            exact = scale * f32(size)
            offset = f32(size) / f32(2) * (f32(1) - f32(result) / exact)
            # ONNX Runtime adds doubles here, and rounds their sum.
            return (offset + (at.astype("f8") + 0.5) / scale - 0.5).astype("f4")
        if self.coordinates == "tf_crop_and_resize":
            if result == 1:
                return np.full(1, f32(0.5) * (begin + end) * f32(size - 1), "f4")
            inside = at * (end - begin) * f32(size - 1) / f32(result - 1)
            return begin * f32(size - 1) + inside
        raise ValueError(f"coordinate_transformation_mode {self.coordinates}")

    def taps(self, axis: Axis, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Input positions and weights of each result, [results, taps]; no weights for one tap."""
        last = axis.size - 1
        if self.mode == b"nearest":
            pixels = np.clip(self._rounded(positions, axis.scale < 1), 0, last)
            return pixels.astype("int64")[:, None], None
        reach = 2 if self.mode == b"cubic" else 1
        squeeze = min(1.0, axis.scale) if self.antialias else 1.0
        positions = positions.astype("f8")
        half = int(np.ceil(reach / squeeze))
        places = np.floor(positions)[:, None] + np.arange(1 - half, half + 1)
        distance = np.abs(places - positions[:, None]) * squeeze
        weights = self._kernel(distance)
        if self.exclude:
            weights = np.where((places < 0) | (places > last), 0, weights)
        if self.exclude or self.antialias:
            weights = weights / weights.sum(1, keepdims=True)
        return np.clip(places, 0, last).astype("int64"), weights

    def _rounded(self, positions: np.ndarray, smaller: bool) -> np.ndarray:
        floor, ceil = np.floor(positions), np.ceil(positions)
        if self.rounding == "up_if_smaller":
            return ceil if smaller else floor
        if self.rounding in ("ceil", "floor"):
            return ceil if self.rounding == "ceil" else floor
        if self.rounding == "round_prefer_floor":
            return np.where(positions - floor - np.float32(0.5) <= TIE, floor, ceil)
        if self.rounding == "round_prefer_ceil":
            return np.where(positions - floor - np.float32(0.5) < -TIE, floor, ceil)
        raise ValueError(f"nearest_mode {self.rounding}")

    def _kernel(self, distance: np.ndarray) -> np.ndarray:
        """Weight at a distance: a triangle, or Keys' cubic convolution."""
        if self.mode == b"linear":
            return np.maximum(0, 1 - distance)
        a, d = self.alpha, distance
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _along(
    image: relax.Expr, axis: Axis, places: np.ndarray, weights: np.ndarray | None
) -> relax.Expr:
    """The weighted sum of the taps along one axis."""
    dtype, rank = str(image.ty.dtype), image.ty.ndim
    if weights is None:
        return _picked(image, axis, places[:, 0])
    if places.shape[1] > MAX_TAPS:
        matrix = np.zeros((axis.size, axis.result))
        np.add.at(matrix, (places.T, np.arange(axis.result)), weights.T)
        order = [i for i in range(rank) if i != axis.axis] + [axis.axis]
        product = relax.op.matmul(
            relax.op.permute_dims(image, order), relax.const(matrix.astype(dtype), dtype)
        )
        return relax.op.permute_dims(product, [int(i) for i in np.argsort(order)])
    total = None
    shape = [-1 if i == axis.axis else 1 for i in range(rank)]
    for tap in np.flatnonzero(np.any(weights, axis=0)):
        taken = relax.op.take(image, relax.const(places[:, tap], "int64"), axis.axis)
        weight = relax.const(weights[:, tap].reshape(shape).astype(dtype), dtype)
        part = relax.op.multiply(taken, weight)
        total = part if total is None else relax.op.add(total, part)
    return total


def _picked(image: relax.Expr, axis: Axis, places: np.ndarray) -> relax.Expr:
    """What stands at places of an axis: a broadcast where it is each element as many times."""
    times, rest = divmod(axis.result, axis.size)
    if times < 2 or rest or not np.array_equal(places, np.arange(axis.result) // times):
        return relax.op.take(image, relax.const(places, "int64"), axis.axis)
    extents = list(image.ty.shape.values)
    before, after = extents[: axis.axis + 1], extents[axis.axis + 1 :]
    spread = relax.op.reshape(image, (*before, 1, *after))
    repeated = relax.op.broadcast_to(spread, (*before, times, *after))
    return relax.op.reshape(repeated, (*before[:-1], axis.result, *after))
