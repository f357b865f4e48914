"""Pooling and resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from tvm import relax

from byoc.frontends.torch.converters.sampling import SAMPLING, places_of_greatest
from byoc.frontends.torch.sizes import known_extents
from byoc.frontends.torch.values import Graph, Value
from byoc.ir.dataflow import dtype_of, shape_of, static_shape_of
from byoc.ir.resized_volume import resized_volume

op = relax.op

_MAX = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_AVERAGE = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}
#: Which result of a pool of greatest elements says where they stand.
PLACES = 1
#: Windows of uneven sizes, of all axes, that are written out.
MOST_WINDOWS = 32
_ADAPTIVE = {
    1: op.nn.adaptive_avg_pool1d,
    2: op.nn.adaptive_avg_pool2d,
    3: op.nn.adaptive_avg_pool3d,
}


def _each(values: int | Sequence[int], count: int) -> list[int]:
    values = [values] if isinstance(values, int) else list(values)
    return values * count if len(values) == 1 else values


def _with_images(
    g: Graph, x: Value, spatial: int, apply: Callable[[relax.Expr], relax.Expr]
) -> relax.Expr:
    """Apply to [N, C, ...] what may come without the axis of images."""
    tensor = g.tensor(x)
    if tensor.ty.ndim == spatial + 2:
        return apply(tensor)
    return op.squeeze(g.emit(apply(g.emit(op.expand_dims(tensor, 0)))), [0])


def _ends(g: Graph, sizes: Sequence[object], windows: list[tuple[int, int, int, int]]) -> list[int]:
    """Padding at the ends such that the result has the extents that PyTorch says.

    ``windows`` are taps, step, gap and padding of each axis.
    """
    ends = []
    for size, wanted, (taps, step, gap, pad) in zip(
        sizes, g.results[0].shape[-len(windows) :], windows, strict=True
    ):
        if not isinstance(size, int) or not isinstance(wanted, int):
            ends.append(pad)
            continue
        reach = (taps - 1) * gap + 1
        ends.append(max(pad, (int(wanted) - 1) * step + reach - size - pad))
    return ends


def max_pool(spatial: int) -> Callable[..., relax.Expr]:
    """The greatest element of each window."""

    def convert(
        g: Graph,
        x: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
    ) -> relax.Expr:
        taps, pads, gaps = (_each(v, spatial) for v in (kernel_size, padding, dilation))
        steps = _each(stride, spatial) if stride else taps

        def apply(image: relax.Expr) -> relax.Expr:
            sizes = shape_of(image)[2:]
            _require_known(sizes, ceil_mode)
            ends = _ends(g, sizes, list(zip(taps, steps, gaps, pads, strict=True)))
            return _MAX[spatial](image, taps, steps, pads + ends, gaps)

        return _with_images(g, x, spatial, apply)

    return convert


def max_pool_with_places(spatial: int) -> Callable[..., list[relax.Expr | None]]:
    """The greatest element of each window, and its place in the image where somebody reads it."""
    pool = max_pool(spatial)

    def convert(g: Graph, x: Value, **named: Any) -> list[relax.Expr | None]:
        values = g.emit(pool(g, x, **named))
        if PLACES not in g.read:
            return [values, None]
        image = g.tensor(x)
        taps, pads, gaps = (
            _each(named[n], spatial) for n in ("kernel_size", "padding", "dilation")
        )
        steps = _each(named["stride"], spatial) if named["stride"] else taps
        windows = list(zip(taps, steps, gaps, pads, strict=True))
        alone = image.ty.ndim == spatial + 1
        if alone:
            image, values = (g.emit(op.expand_dims(each, 0)) for each in (image, values))
        ends = _ends(g, shape_of(image)[2:], windows)
        places = g.emit(places_of_greatest(g, image, values, windows, ends))
        return [op.squeeze(each, [0]) if alone else each for each in (values, places)]

    return convert


def _of_volumes(
    g: Graph, image: relax.Expr, taps: list[int], steps: list[int], padding: list[int]
) -> relax.Expr:
    """The mean of what lies in each window: that of all of it, by the share that the volume has."""
    sizes = known_extents(image, 2)
    if sizes is None:
        return op.nn.avg_pool3d(image, taps, steps, padding, count_include_pad=False)
    made = g.emit(op.nn.avg_pool3d(image, taps, steps, padding, count_include_pad=True))
    rank = len(sizes)
    ones = torch.ones(1, 1, *sizes)
    widths = [w for i in reversed(range(rank)) for w in (padding[i], padding[rank + i])]
    share = F.avg_pool3d(F.pad(ones, widths), taps, steps)
    return op.divide(made, g.tensor(share, dtype_of(image)))


def average_pool(spatial: int) -> Callable[..., relax.Expr]:
    """The mean of each window; of what is added at the ends to round up, nothing counts."""

    def convert(
        g: Graph,
        x: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None = None,
    ) -> relax.Expr:
        taps, pads = _each(kernel_size, spatial), _each(padding, spatial)
        steps = _each(stride, spatial) if stride else taps

        def apply(image: relax.Expr) -> relax.Expr:
            sizes = shape_of(image)[2:]
            _require_known(sizes, ceil_mode)
            begins = list(pads)
            ends = _ends(g, sizes, list(zip(taps, steps, [1] * spatial, pads, strict=True)))
            counted = count_include_pad
            if divisor_override is not None:
                return _sums(g, image, taps, steps, pads, ends, divisor_override)
            if counted and ends != begins:
                widths = [0] * 4 + [w for pad in pads for w in (pad, pad)]
                image = g.emit(op.nn.pad(image, widths))
                ends = [end - pad for end, pad in zip(ends, pads, strict=True)]
                begins, counted = [0] * spatial, False
            if spatial == 3 and not counted and any(begins + ends):
                return _of_volumes(g, image, taps, steps, begins + ends)
            return _AVERAGE[spatial](image, taps, steps, begins + ends, count_include_pad=counted)

        return _with_images(g, x, spatial, apply)

    return convert


def _sums(
    g: Graph,
    image: relax.Expr,
    taps: list[int],
    steps: list[int],
    begins: list[int],
    ends: list[int],
    divisor: int,
) -> relax.Expr:
    """The sums of windows over a number."""
    widths = [0] * 4 + [w for pair in zip(begins, ends, strict=True) for w in pair]
    padded = g.emit(op.nn.pad(image, widths)) if any(widths) else image
    means = _AVERAGE[len(taps)](padded, taps, steps, count_include_pad=True)
    return op.multiply(means, g.tensor(prod(taps) / divisor))


def _require_known(sizes: Sequence[object], ceil_mode: bool) -> None:
    if ceil_mode and not all(isinstance(size, int) for size in sizes):
        raise ValueError("ceil_mode of an image of unknown size; need a fixed one")


def adaptive_average(spatial: int) -> Callable[..., relax.Expr]:
    """The means of as many windows as the result has elements."""

    def convert(g: Graph, x: Value, output_size: Sequence[int]) -> relax.Expr:
        wanted = g.shape[-spatial:]

        def apply(image: relax.Expr) -> relax.Expr:
            sizes = known_extents(image, -spatial)
            if sizes is None or not all(isinstance(count, int) for count in wanted):
                return _ADAPTIVE[spatial](image, wanted)
            if all(size % count == 0 for size, count in zip(sizes, wanted, strict=True)):
                taps = [size // count for size, count in zip(sizes, wanted, strict=True)]
                return _AVERAGE[spatial](image, taps, taps)
            if sum(wanted) > MOST_WINDOWS:
                return _ADAPTIVE[spatial](image, wanted)
            return _by_axes(g, image, sizes, wanted, op.mean)

        return _with_images(g, x, spatial, apply)

    return convert


def _by_axes(
    g: Graph,
    image: relax.Expr,
    sizes: Sequence[int],
    wanted: Sequence[int],
    reduction: Callable[..., relax.Expr],
) -> relax.Expr:
    """Windows of one axis after another reduced, as many as are wanted of it.

    All lines of a window are equally long, so that the mean of their means is its mean.
    """
    for place, (size, count) in enumerate(zip(sizes, wanted, strict=True)):
        axis = image.ty.ndim - len(sizes) + place
        parts = []
        for i in range(count):
            begin, end = i * size // count, -(-(i + 1) * size // count)
            part = g.emit(op.strided_slice(image, [axis], [begin], [end]))
            parts.append(g.emit(reduction(part, [axis], True)))
        image = parts[0] if count == 1 else g.emit(op.concat(parts, axis))
    return image


def adaptive_max(spatial: int) -> Callable[..., list[relax.Expr | None]]:
    """The greatest elements of windows whose borders are those of the means."""

    def convert(g: Graph, x: Value, output_size: Sequence[int]) -> list[relax.Expr | None]:
        tensor = g.tensor(x)
        sizes, wanted = known_extents(tensor, -spatial), g.shape[-spatial:]
        if sizes is None:
            if any(size != 1 for size in wanted):
                raise ValueError("windows of an image of unknown size; need a fixed one")
            return [op.max(tensor, list(range(-spatial, 0)), True), None]
        return [_by_axes(g, tensor, sizes, wanted, op.max), None]

    return convert


# ---------------------------------------------------------------------- resizing

_COORDINATES = {True: "align_corners", False: "half_pixel"}


def interpolated(mode: str) -> Callable[..., relax.Expr]:
    """An image [N, C, H, W] enlarged or reduced, bilinear or bicubic."""

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
        if not align_corners and not _even(g, image, scales):
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
        return _lines_by_matrices(g, volume, scales)
    coordinates = {"coordinate_transformation_mode": _COORDINATES[align_corners]}
    return resized_volume(volume, g.shape[2:], {"method": "linear", **coordinates})


def _lines_by_matrices(g: Graph, volume: relax.Expr, scales: Sequence[float | None]) -> relax.Expr:
    """One axis after another by products with matrices that PyTorch itself computes."""
    shape = static_shape_of(volume)
    if shape is None:
        raise ValueError("resizing a volume of unknown size by this scale; need a fixed one")
    sizes = zip(shape[2:], g.shape[2:], scales, strict=True)
    for axis, (size, wanted, scale) in enumerate(sizes, 2):
        units = torch.eye(size, dtype=torch.float64)[None]
        matrix = torch.ops.aten.upsample_linear1d.default(units, [wanted], False, scale)[0]
        order = [i for i in range(5) if i != axis] + [axis]
        lines = g.emit(op.permute_dims(volume, order))
        made = g.emit(op.matmul(lines, g.tensor(matrix.to(getattr(torch, g.dtype)))))
        volume = g.emit(op.permute_dims(made, [order.index(i) for i in range(5)]))
    return volume


def smoothed(mode: str) -> Callable[..., relax.Expr]:
    """The same, with as many taps as a reduction needs not to skip pixels."""

    def convert(
        g: Graph,
        input: Value,
        output_size: Sequence[Value] | None = None,
        align_corners: bool = False,
        scale_factors: Sequence[float] | None = None,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> relax.Expr:
        scales = list(scale_factors or (scales_h, scales_w))
        return _by_matrices(g, g.tensor(input), mode, align_corners, scales, True)

    return convert


def _even(g: Graph, image: relax.Expr, scales: Sequence[float | None]) -> bool:
    """Whether the ratio of the sizes is the scale that was asked for."""
    sizes = shape_of(image)[2:]
    for size, wanted, scale in zip(sizes, g.shape[2:], scales, strict=False):
        if scale is not None and not (
            isinstance(size, int) and isinstance(wanted, int) and wanted == size * scale
        ):
            return not isinstance(size, int)
    return True


def _by_matrices(
    g: Graph,
    image: relax.Expr,
    mode: str,
    align_corners: bool,
    scales: list[float | None],
    antialias: bool,
) -> relax.Expr:
    """Both axes by products with matrices that PyTorch itself computes, of fixed sizes."""
    shape = static_shape_of(image)
    if shape is None:
        raise ValueError("resizing an image of unknown size by this scale; need a fixed one")
    name = f"_upsample_{mode}2d_aa" if antialias else f"upsample_{mode}2d"
    resize = getattr(torch.ops.aten, name).default
    matrices = []
    for size, wanted, scale in zip(shape[2:], g.shape[2:], scales, strict=True):
        # Every column is a unit vector, and only the rows are resized.
        units = torch.eye(size, dtype=torch.float64)[None, None]
        matrices.append(resize(units, [wanted, size], align_corners, scale, 1.0)[0, 0])
    rows, columns = (m.to(getattr(torch, g.dtype)) for m in matrices)
    wide = g.emit(op.matmul(image, g.tensor(columns.t())))
    return op.matmul(g.tensor(rows), wide)


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
        factors, sizes = list(scale_factors or given), shape_of(image)
        if spatial != 1 and not exact and _even(g, image, factors):
            told = {
                "method": "nearest_neighbor",
                "coordinate_transformation_mode": "asymmetric",
                "rounding_method": "floor",
            }
            if spatial == 3:
                return resized_volume(image, g.shape[2:], told)
            return op.image.resize2d(image, relax.ShapeExpr(g.shape[2:]), layout="NCHW", **told)
        if not all(isinstance(extent, int) for extent in (*sizes[2:], *g.shape[2:])):
            raise ValueError("the nearest pixel of an image of unknown size by this scale")
        name = "_upsample_nearest_exact1d" if exact else "upsample_nearest1d"
        place = getattr(torch.ops.aten, name).default
        for axis, factor in enumerate(factors, 2):
            counted = torch.arange(sizes[axis], dtype=torch.float64)[None, None]
            places = place(counted, [g.shape[axis]], factor)[0, 0].long()
            image = g.emit(op.take(image, g.tensor(places), axis))
        return image

    return convert


IMAGE = {
    **{f"max_pool{n}d": max_pool(n) for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": max_pool_with_places(n) for n in (2, 3)},
    **{f"avg_pool{n}d": average_pool(n) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": adaptive_average(n) for n in (1, 2, 3)},
    **{f"_adaptive_avg_pool{n}d": adaptive_average(n) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d": adaptive_max(n) for n in (1, 2, 3)},
    **{f"upsample_{mode}2d": interpolated(mode) for mode in ("bilinear", "bicubic")},
    "upsample_trilinear3d": trilinear,
    **{f"_upsample_{mode}2d_aa": smoothed(mode) for mode in ("bilinear", "bicubic")},
    **{f"upsample_nearest{n}d": nearest(exact=False) for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d": nearest(exact=True) for n in (1, 2, 3)},
    **SAMPLING,
}
