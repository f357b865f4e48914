"""Pooling and resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from tvm import relax, te, tirx, topi

from byoc.frontends.places_of_greatest import known_extents, places_of_greatest
from byoc.frontends.torch.converters.movement import part_of
from byoc.frontends.torch.converters.resizing import RESIZING
from byoc.frontends.torch.converters.sampling import SAMPLING
from byoc.frontends.torch.values import Graph, Value
from byoc.ir.dataflow import dtype_of, shape_of
from codegen_cc.region.relax_dims import relax_dims

op = relax.op

_MAX = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_AVERAGE = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}
#: Which result of a pool of greatest elements says where they stand.
PLACES = 1
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


def _ends(
    g: Graph,
    sizes: Sequence[object],
    windows: list[tuple[int, int, int, int]],
    ceil_mode: bool,
) -> list[int]:
    """Padding at the ends such that the result has the extents that PyTorch says, or, along an open
    axis that is rounded up, one window more (see ``_cut``).

    ``windows`` are taps, step, gap and padding of each axis.
    """
    ends = []
    for size, wanted, (taps, step, gap, pad) in zip(
        sizes, g.results[0].shape[-len(windows) :], windows, strict=True
    ):
        if not isinstance(size, int) or not isinstance(wanted, int):
            ends.append(pad + (step - 1 if ceil_mode else 0))
            continue
        reach = (taps - 1) * gap + 1
        ends.append(max(pad, (int(wanted) - 1) * step + reach - size - pad))
    return ends


def _cut(g: Graph, made: relax.Expr, spatial: int) -> relax.Expr:
    """Windows without a last one that begins behind the image, where calls decide whether it is
    there."""
    for axis in range(-spatial, 0):
        wanted, found = g.shape[axis], made.ty.shape.values[axis]
        if not isinstance(wanted, int) and relax_dims([wanted]) != relax_dims([found]):
            made = g.emit(part_of(made, made.ty.ndim + axis, 0, wanted))
    return made


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
            windows = list(zip(taps, steps, gaps, pads, strict=True))
            ends = _ends(g, sizes, windows, ceil_mode)
            made = _MAX[spatial](image, taps, steps, pads + ends, gaps)
            return _cut(g, g.emit(made), spatial) if ceil_mode else made

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
        places = g.emit(places_of_greatest(g.emit, image, values, windows, last_nan=True))
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
            begins = list(pads)
            windows = list(zip(taps, steps, [1] * spatial, pads, strict=True))
            ends, counted = _ends(g, sizes, windows, ceil_mode), count_include_pad
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

        made = _with_images(g, x, spatial, apply)
        return _cut(g, g.emit(made), spatial) if ceil_mode else made

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


def adaptive_average(spatial: int) -> Callable[..., relax.Expr]:
    """The means of as many windows as the result has elements."""

    def convert(g: Graph, x: Value, output_size: Sequence[int]) -> relax.Expr:
        wanted = g.shape[-spatial:]

        def apply(image: relax.Expr) -> relax.Expr:
            if all(isinstance(count, int) for count in wanted):
                return _ADAPTIVE[spatial](image, wanted)
            return g.builder.emit_te(_windows, image, wanted)

        return _with_images(g, x, spatial, apply)

    return convert


def _windows(image: te.Tensor, wanted: Sequence[tirx.Expr]) -> te.Tensor:
    """Means of as many windows as a call says, in TVM's loops."""
    layout = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[len(wanted)]
    pool = {1: topi.nn.adaptive_pool1d, 2: topi.nn.adaptive_pool, 3: topi.nn.adaptive_pool3d}
    return pool[len(wanted)](image, wanted, "avg", layout)


def _by_axes(g: Graph, image: relax.Expr, wanted: Sequence[int]) -> relax.Expr:
    """The greatest of windows of one axis after another, as many as are wanted of it."""
    for axis, count in enumerate(wanted, image.ty.ndim - len(wanted)):
        extent = image.ty.shape.values[axis]
        size = getattr(extent, "value", extent)
        parts = []
        for i in range(count):
            begin = i * size // count if i else 0
            end = ((i + 1) * size + count - 1) // count if i + 1 < count else size
            part = g.emit(part_of(image, axis, begin, end))
            parts.append(g.emit(op.max(part, [axis], True)))
        image = parts[0] if count == 1 else g.emit(op.concat(parts, axis))
    return image


def _with_places(
    g: Graph, image: relax.Expr, sizes: Sequence[int], wanted: Sequence[int]
) -> list[relax.Expr]:
    """The greatest element of each window, and its place in the image, row by row.

    The last axis first, so that of equal elements the first one is found, and of NaN the last.
    """
    places = None
    for from_last, (size, count) in enumerate(zip(sizes[::-1], wanted[::-1], strict=True)):
        axis = image.ty.ndim - 1 - from_last
        row = prod(sizes[len(sizes) - from_last :])
        parts, found = [], []
        for i in range(count):
            begin, end = i * size // count, -(-(i + 1) * size // count)
            part = g.emit(op.strided_slice(image, [axis], [begin], [end]))
            greatest = g.emit(op.max(part, [axis], True))
            chosen = _first_of_greatest(g, part, greatest, axis, end - begin)
            place = op.multiply(op.add(chosen, g.tensor(begin, "int64")), g.tensor(row, "int64"))
            if places is not None:
                inner = g.emit(op.strided_slice(places, [axis], [begin], [end]))
                place = op.add(g.emit(place), g.emit(op.gather_elements(inner, chosen, axis)))
            parts.append(greatest)
            found.append(g.emit(place))
        image = g.emit(op.concat(parts, axis)) if count > 1 else parts[0]
        places = g.emit(op.concat(found, axis)) if count > 1 else found[0]
    return [image, places]


def _first_of_greatest(
    g: Graph, part: relax.Expr, greatest: relax.Expr, axis: int, length: int
) -> relax.Expr:
    """Where along an axis the greatest element stands first, or the last NaN, int64."""
    first = g.emit(op.argmax(part, axis, True))
    turned = g.tensor(torch.arange(length - 1, -1, -1))
    back = g.emit(op.argmax(g.emit(op.take(part, turned, axis)), axis, True))
    last = g.emit(op.subtract(g.tensor(length - 1, "int64"), back))
    return g.emit(op.where(g.emit(op.isnan(greatest)), last, first))


def adaptive_max(spatial: int) -> Callable[..., list[relax.Expr | None]]:
    """The greatest elements of windows whose borders are those of the means."""

    def convert(g: Graph, x: Value, output_size: Sequence[int]) -> list[relax.Expr | None]:
        tensor = g.tensor(x)
        sizes, wanted = known_extents(tensor, -spatial), g.shape[-spatial:]
        if PLACES in g.read:
            if sizes is None:
                raise ValueError("places in an image of unknown size; need a fixed one")
            return _with_places(g, tensor, sizes, wanted)
        if not all(isinstance(count, int) for count in wanted):
            raise ValueError("as many windows as a call says; need a fixed number")
        if set(wanted) == {1}:
            return [op.max(tensor, list(range(-spatial, 0)), True), None]
        return [_by_axes(g, tensor, wanted), None]

    return convert


IMAGE = {
    **{f"max_pool{n}d": max_pool(n) for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": max_pool_with_places(n) for n in (2, 3)},
    **{f"avg_pool{n}d": average_pool(n) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": adaptive_average(n) for n in (1, 2, 3)},
    **{f"_adaptive_avg_pool{n}d": adaptive_average(n) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d": adaptive_max(n) for n in (1, 2, 3)},
    **RESIZING,
    **SAMPLING,
}
