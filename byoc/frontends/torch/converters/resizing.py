"""Images and volumes enlarged or reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from tvm import relax

from byoc.frontends.torch.converters.smoothing import smoothing_matrix
from byoc.frontends.torch.sizes import size_tensor
from byoc.frontends.torch.values import Graph, Value
from byoc.ir.dataflow import dtype_of, shape_of, static_shape_of
from byoc.ir.resized_volume import resized_volume
from codegen_cc.dim import is_static, same
from codegen_cc.operators.resize2d import FLOOR_EXACT, taps_of

op = relax.op

_COORDINATES = {True: "align_corners", False: "half_pixel"}


def interpolated(mode: str, smoothed: bool = False) -> Callable[..., relax.Expr]:
    """An image [N, C, H, W] enlarged or reduced, bilinear or bicubic.

    ``smoothed``: with as many taps as a reduction needs not to skip pixels.
    """

    def convert(
        g: Graph,
        input: Value,
        output_size: Sequence[Value] | None = None,
        align_corners: bool = False,
        scale_factors: Sequence[float] | None = None,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> relax.Expr:
        image, scales = g.tensor(input), scale_factors or (scales_h, scales_w)
        if not dtype_of(image).startswith(("float", "bfloat")):
            raise ValueError(
                f"an image of {dtype_of(image)}, of which PyTorch rounds weights and sums to whole"
                " numbers; need floats, as of image.float()"
            )
        if smoothed:
            return _by_matrices(g, image, mode, align_corners, list(scales), True)
        if not align_corners and not _even(g, image, scales):
            if static_shape_of(image) is None:
                way = {"bilinear": "linear", "bicubic": "cubic"}[mode]
                return sampled(g, image, way, list(scales), False)
            return _by_matrices(g, image, mode, align_corners, list(scales), False)
        return op.image.resize2d(
            image,
            relax.ShapeExpr(g.shape[2:]),
            layout="NCHW",
            method={"bilinear": "linear", "bicubic": "cubic"}[mode],
            coordinate_transformation_mode=_COORDINATES[align_corners],
            cubic_alpha=-0.75,
        )

    return convert


def trilinear(
    g: Graph,
    input: Value,
    output_size: Sequence[Value] | None = None,
    align_corners: bool = False,
    scale_factors: Sequence[float] | None = None,
    scales_d: float | None = None,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> relax.Expr:
    """Volumes [N, C, D, H, W] enlarged or reduced."""
    volume, scales = g.tensor(input), scale_factors or (scales_d, scales_h, scales_w)
    if not align_corners and not _even(g, volume, scales):
        if static_shape_of(volume) is None:
            return sampled(g, volume, "linear", list(scales), False)
        return _lines_by_matrices(g, volume, scales)
    coordinates = {"coordinate_transformation_mode": _COORDINATES[align_corners]}
    return resized_volume(volume, g.shape[2:], {"method": "linear", **coordinates})


def _lines_by_matrices(g: Graph, volume: relax.Expr, scales: Sequence[float | None]) -> relax.Expr:
    """One axis after another by products with matrices that PyTorch itself computes."""
    shape = static_shape_of(volume)
    sizes = zip(shape[2:], g.shape[2:], scales, strict=True)
    for axis, (size, wanted, scale) in enumerate(sizes, 2):
        units = torch.eye(size, dtype=torch.float64)[None]
        matrix = torch.ops.aten.upsample_linear1d.default(units, [wanted], False, scale)[0]
        order = [i for i in range(5) if i != axis] + [axis]
        lines = g.emit(op.permute_dims(volume, order))
        made = g.emit(op.matmul(lines, g.tensor(matrix.to(getattr(torch, g.dtype)))))
        volume = g.emit(op.permute_dims(made, [order.index(i) for i in range(5)]))
    return volume


def _even(g: Graph, image: relax.Expr, scales: Sequence[float | None]) -> bool:
    """Whether the ratio of the sizes is the scale that was asked for."""
    axes = zip(shape_of(image)[2:], g.results[0].shape[2:], scales, strict=False)
    for size, wanted, scale in axes:
        if scale is None:
            continue
        if is_static((size, wanted)):
            if wanted != size * scale:
                return False
        elif not _is_times(g, size, wanted, scale):
            return False
    return True


def _by_matrices(
    g: Graph,
    image: relax.Expr,
    mode: str,
    align_corners: bool,
    scales: list[float | None],
    antialias: bool,
) -> relax.Expr:
    """Both axes by products with matrices: of fixed sizes those that PyTorch itself computes, of
    open ones those of ``smoothing_matrix``."""
    name = f"_upsample_{mode}2d_aa" if antialias else f"upsample_{mode}2d"
    resize = getattr(torch.ops.aten, name).default
    sides = zip(image.ty.shape.values[2:], g.shape[2:], scales, strict=True)
    matrices = []
    for (size, wanted, scale), known in zip(sides, shape_of(image)[2:], strict=True):
        if is_static((known, getattr(wanted, "value", wanted))):
            # Every column is a unit vector, and only the rows are resized.
            units = torch.eye(int(known), dtype=torch.float64)[None, None]
            made = resize(units, [int(wanted), int(known)], align_corners, scale, 1.0)[0, 0]
            matrices.append(g.tensor(made.to(getattr(torch, g.dtype))))
        else:
            matrices.append(smoothing_matrix(g, size, wanted, scale, mode, align_corners))
    rows, columns = matrices
    wide = g.emit(op.matmul(image, g.emit(op.permute_dims(columns, [1, 0]))))
    return op.matmul(rows, wide)


def nearest(exact: bool) -> Callable[..., relax.Expr]:
    """The nearest pixel, rounded down; where ``exact``, by the centres of pixels."""

    def convert(
        g: Graph,
        input: Value,
        output_size: Sequence[Value] | None = None,
        scale_factors: Sequence[float] | None = None,
        scales: float | None = None,
        scales_d: float | None = None,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> relax.Expr:
        image = g.tensor(input)
        spatial = image.ty.ndim - 2
        given = {1: (scales,), 2: (scales_h, scales_w), 3: (scales_d, scales_h, scales_w)}[spatial]
        factors = list(scale_factors or given)
        if spatial != 1 and (told := _rounding(g, image, factors, exact)):
            if spatial == 3:
                return resized_volume(image, g.shape[2:], told)
            return op.image.resize2d(image, relax.ShapeExpr(g.shape[2:]), layout="NCHW", **told)
        if not is_static((*shape_of(image)[2:], *g.results[0].shape[2:])):
            return sampled(g, image, "exact" if exact else "nearest", factors, False)
        for axis, factor in enumerate(factors, 2):
            places = _places(g, shape_of(image)[axis], int(g.shape[axis]), factor, exact)
            image = g.emit(op.take(image, g.tensor(places), axis))
        return image

    return convert


def _places(g: Graph, size: int, wanted: int, factor: float | None, exact: bool) -> torch.Tensor:
    """Which pixels of an axis PyTorch takes, which computes them as exactly as the image is."""
    dtype = torch.float64 if g.dtype == "float64" else torch.float32
    name = "_upsample_nearest_exact1d" if exact else "upsample_nearest1d"
    counted = torch.arange(size, dtype=dtype)[None, None]
    return getattr(torch.ops.aten, name).default(counted, [wanted], factor)[0, 0].long()


def _rounding(
    g: Graph, image: relax.Expr, factors: Sequence[float | None], exact: bool
) -> dict[str, Any] | None:
    """What ``resize2d`` is told to take the pixels that PyTorch takes; None where it cannot."""
    told = {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric"}
    axes = list(zip(shape_of(image)[2:], g.results[0].shape[2:], factors, strict=True))
    if not exact and all(_repeats(g, *axis) for axis in axes):
        return {**told, "rounding_method": "floor"}
    if dtype_of(image) not in ("float32", "float16", "bfloat16"):
        return None  # TVM would take them, which knows no such rounding
    if is_static([n for size, wanted, _ in axes for n in (size, wanted)]):
        return None
    if exact:
        told["coordinate_transformation_mode"] = "tf_half_pixel_for_nn"
    ratios = all(
        factor is None or _is_times(g, size, wanted, factor) for size, wanted, factor in axes
    )
    return {**told, "rounding_method": FLOOR_EXACT} if ratios else None


def _repeats(g: Graph, size: Any, wanted: Any, factor: float | None) -> bool:
    """Whether each pixel is found as often as it is repeated, by PyTorch as well, or an axis of
    fixed extents is what ``resize2d`` makes of it."""
    if is_static((size, wanted)):
        attrs = {"method": "nearest", "coordinate": "asymmetric", "rounding": "floor"}
        at, _ = taps_of(size, wanted, {**attrs, "divided": False})
        return np.array_equal(at[:, 0], _places(g, size, wanted, factor, exact=False).numpy())
    return same(g.symbols.dim(wanted), 2 * size) or same(g.symbols.dim(wanted), size)


def _is_times(g: Graph, size: Any, wanted: Any, factor: float) -> bool:
    """Whether the ratio of the sizes is a scale, for all of them."""
    return float(factor).is_integer() and same(g.symbols.dim(wanted), int(factor) * size)


#: Weights of the two neighbours at a distance below 1, and of those below 2 (Keys, 1981).
_ALPHA = -0.75


def sampled(
    g: Graph,
    image: relax.Expr,
    mode: str,
    scales: Sequence[float | None],
    align_corners: bool,
) -> relax.Expr:
    """Images of any size, one axis after another: pixels at the places that PyTorch's arithmetic
    gives, as it stands, and their weighted sums. ``mode``: nearest, exact, linear or cubic."""
    rank = image.ty.ndim
    for axis, scale in reversed(list(enumerate(scales, 2))):
        size, wanted = image.ty.shape.values[axis], g.shape[axis]
        sides = shape_of(image)[axis], g.symbols.dim(g.results[0].shape[axis])
        if same(*sides) and scale in (None, 1.0):
            continue
        line = _Line(g, size, wanted, "float64" if g.dtype == "float64" else "float32")
        position = line.positions(scale, mode, align_corners)
        taken = []
        for places, weight in line.taps(position, mode):
            part = g.emit(op.take(image, places, axis))
            if weight is not None:
                shape = [wanted if i == axis else 1 for i in range(rank)]
                part = g.emit(op.multiply(part, g.emit(op.reshape(weight, shape))))
            taken.append(part)
        image = reduce(lambda a, b: g.emit(op.add(a, b)), taken)
    return image


class _Line:
    """An axis of ``size`` pixels, of which calls make ``wanted`` ones."""

    def __init__(self, g: Graph, size: Any, wanted: Any, dtype: str) -> None:
        self._g, self._size, self._wanted, self._dtype = g, size, wanted, dtype

    def _number(self, value: float) -> relax.Expr:
        return self._g.tensor(value, self._dtype)

    def positions(self, scale: float | None, mode: str, align_corners: bool) -> relax.Expr:
        """Where each pixel of the result lies on the axis."""
        emit, size, wanted = self._g.emit, *map(self._extent, (self._size, self._wanted))
        one, half = self._number(1.0), self._number(0.5)
        if align_corners:
            least = emit(op.maximum(emit(op.subtract(wanted, one)), one))
            step = emit(op.divide(emit(op.subtract(size, one)), least))
        elif scale is not None:
            step = self._number(float(np.float64(1.0) / scale))
        else:
            step = emit(op.divide(size, wanted))
        at = emit(op.astype(emit(op.arange(0, self._wanted, 1, "int64")), self._dtype))
        if align_corners or mode == "nearest":
            return emit(op.multiply(at, step))
        at = emit(op.multiply(emit(op.add(at, half)), step))
        if mode == "exact":
            return at
        at = emit(op.subtract(at, half))
        return at if mode == "cubic" else emit(op.maximum(at, self._number(0.0)))

    def taps(self, position: relax.Expr, mode: str) -> list[tuple[relax.Expr, relax.Expr | None]]:
        """The pixels that count and the weight of each; None for a single one."""
        emit = self._g.emit
        low = emit(op.floor(position))
        if mode in ("nearest", "exact"):
            return [(self._place(low), None)]
        if mode == "linear":
            low = emit(op.minimum(low, self._last()))
            high = emit(op.subtract(position, low))
            rest = emit(op.subtract(self._number(1.0), high))
            above = emit(op.add(low, self._number(1.0)))
            return [(self._place(low), rest), (self._place(above), high)]
        part = emit(op.subtract(position, low))
        other = emit(op.subtract(self._number(1.0), part))
        taps = []
        for step, (far, distance) in enumerate(((1, part), (0, part), (0, other), (1, other)), -1):
            place = low if step == 0 else emit(op.add(low, self._number(float(step))))
            taps.append((self._place(place), self._weight(distance, bool(far))))
        return taps

    def _weight(self, distance: relax.Expr, is_far: bool) -> relax.Expr:
        """Of a pixel at this distance, or at one more."""
        a = _ALPHA
        factors = (a, -5 * a, 8 * a, -4 * a) if is_far else (a + 2, -(a + 3), 0.0, 1.0)
        x = distance
        if is_far:
            x = self._g.emit(op.add(x, self._number(1.0)))
        made = self._number(factors[0])
        for factor in factors[1:]:
            made = self._g.emit(op.multiply(made, x))
            made = self._g.emit(op.add(made, self._number(factor)))
        return made

    def _extent(self, extent: Any) -> relax.Expr:
        return size_tensor(self._g.builder, extent, self._dtype)

    def _last(self) -> relax.Expr:
        return self._g.emit(op.subtract(self._extent(self._size), self._number(1.0)))

    def _place(self, at: relax.Expr) -> relax.Expr:
        """A pixel of the axis as int64; beyond it the outermost one."""
        inside = self._g.emit(op.maximum(at, self._number(0.0)))
        inside = self._g.emit(op.minimum(inside, self._last()))
        return self._g.emit(op.astype(inside, "int64"))


_MODES = ("bilinear", "bicubic")


def _image_first(convert: Callable[..., relax.Expr]) -> dict[str, Callable[..., relax.Expr]]:
    """By form: the image is ``input`` in the one that layers call, ``vec``, and ``self`` else."""

    def of_self(g: Graph, x: Value, **others: Any) -> relax.Expr:
        return convert(g, input=x, **others)

    return {"vec": convert, "default": of_self}


RESIZING = {
    f"{name}.{form}": converter
    for name, convert in {
        **{f"upsample_{mode}2d": interpolated(mode) for mode in _MODES},
        "upsample_trilinear3d": trilinear,
        **{f"_upsample_{mode}2d_aa": interpolated(mode, smoothed=True) for mode in _MODES},
        **{f"upsample_nearest{n}d": nearest(exact=False) for n in (1, 2, 3)},
        **{f"_upsample_nearest_exact{n}d": nearest(exact=True) for n in (1, 2, 3)},
    }.items()
    for form, converter in _image_first(convert).items()
}
