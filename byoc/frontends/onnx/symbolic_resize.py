"""ONNX's Resize of images whose height and width are symbolic, of lines and of volumes.

TVM's converter computes sizes in fp32, which leaves expressions that nothing can be proved of. A
line [batch, channels, length], as of sound, is resized as an image of one row, and a volume
[batch, channels, depth, height, width] as its planes, and then along the depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import sympy
import tvm
from tvm import relax

from byoc.frontends.onnx.inferred_shapes import scaled_extent
from byoc.frontends.onnx.learned_axes import Unequal
from byoc.ir.dataflow import array_of, shape_of
from byoc.ir.resized_volume import resized_volume
from byoc.patterns.image import DIVIDED
from codegen_cc.dim import Dim, is_static, normal, same, symbols
from codegen_cc.region.relax_dims import relax_dims

#: Methods of ``relax.image.resize2d`` by ONNX's modes.
METHODS = {b"nearest": "nearest_neighbor", b"linear": "linear", b"cubic": "cubic"}

#: Before this opset there was one coordinate transformation, and scales were the second input.
FIRST_WITH_MODES = 11

#: Greatest denominator of a scale that fp32 rounded: samples of sound in a frame are fewer.
MAX_DENOMINATOR = 1024

#: A quarter of an fp32's last place, relative to the least number that has one as large: a product
#: of a scale that is smaller than its fraction by no more is the whole number, and not below it.
MAX_SHORTFALL = Fraction(1, 2**25)

#: Ranks of lines, images and volumes.
LINE, IMAGE, VOLUME = RANKS = (3, 4, 5)

#: The axis that makes an image of a line.
_ROWS = 2


def is_symbolic_image(inputs: Sequence[relax.Expr | None]) -> bool:
    """Whether ``resized_image`` is needed: symbols in height, width, their sizes, or no shape.

    Where these are all known there are converters for more forms.
    """
    image = inputs[0]
    if image.ty.ndim not in RANKS:
        return False
    shape, sizes = shape_of(image), inputs[3] if len(inputs) > 3 else None
    given = isinstance(sizes, relax.ShapeExpr)
    if image.ty.ndim == LINE:
        wanted = relax_dims(sizes.values) if given else ()
        return shape is not None and not is_static([*shape[2:], *wanted])
    if shape is None or not is_static(shape[2:]):
        return True
    wanted = relax_dims(sizes.values) if given else shape
    kept = len(wanted) == len(shape) and all(map(same, wanted[:2], shape[:2]))
    return not (kept and is_static(wanted[2:]))


def resized_image(
    op_name: str,
    inputs: Sequence[relax.Expr | None],
    attrs: dict[str, Any],
    opset: int,
    extent_of: Callable[[Dim], int | tvm.ir.Expr],
    unequal: Unequal,
) -> relax.Expr:
    """Convert Resize or Upsample of a tensor of one of the ``RANKS``.

    Extents of which scales give no whole number are added to ``unequal``, beside such that do.
    Raises ``ValueError`` for what ``resized`` and ``resize_options`` refuse, and where its shape,
    scales or sizes are not known.
    """
    options = resize_options(attrs, opset if op_name == "Resize" else 0)
    image, shape = inputs[0], shape_of(inputs[0])
    if shape is None:
        raise ValueError("the shape of its input is not known")
    place = 1 if op_name == "Upsample" or opset < FIRST_WITH_MODES else 2
    scales = attrs.get("scales") or _numbers(inputs, place)
    sizes = inputs[3] if len(inputs) > 3 else None
    if isinstance(sizes, relax.ShapeExpr):
        sizes = relax_dims(sizes.values)
    elif sizes is not None:
        sizes = [int(size) for size in _numbers(inputs, 3)]
    if not scales and not sizes:
        raise ValueError("scales or sizes are computed; need constants, or sizes of a Concat")
    nearest = options["method"] == METHODS[b"nearest"]
    if op_name == "Resize" and opset < FIRST_WITH_MODES and nearest:
        options["rounding_method"] = old_rounding(scales)
    if scales and not sizes and len(scales) == len(shape):
        unequal += filter(None, map(_uneven, shape, scales))
    target = [extent_of(extent) for extent in resized(shape, scales, sizes, attrs)]
    if len(shape) == IMAGE:
        return relax.op.image.resize2d(image, size=relax.ShapeExpr(target), **options)
    if len(shape) == VOLUME:
        if options["coordinate_transformation_mode"] == "tf_half_pixel_for_nn":
            raise ValueError("tf_half_pixel_for_nn of volumes; need half_pixel")
        return resized_volume(image, target, options)
    rows = relax.op.expand_dims(image, _ROWS)
    wide = relax.op.image.resize2d(rows, size=relax.ShapeExpr([1, *target]), **options)
    return relax.op.squeeze(wide, [_ROWS])


def _numbers(inputs: Sequence[relax.Expr | None], place: int) -> list[float]:
    """The values of a constant input; none where it is left out or computed."""
    expr = inputs[place] if len(inputs) > place else None
    values = None if expr is None else array_of(expr)
    return [] if values is None else values.ravel().tolist()


def resized(
    shape: tuple[Dim, ...],
    scales: Sequence[float] | None,
    sizes: Sequence[Dim] | None,
    attrs: dict[str, Any],
) -> tuple[Dim, ...]:
    """What follows batch and channels of the result's shape, for an image's or a line's shape.

    Raises ``ValueError`` where they are no whole numbers for every value of the symbols, or where
    an attribute asks for what has no kernel.
    """
    if attrs.get("antialias"):
        raise ValueError("antialias=1 with symbolic extents; need 0")
    policy = attrs.get("keep_aspect_ratio_policy", b"stretch").decode()
    if policy != "stretch":
        raise ValueError(f"keep_aspect_ratio_policy {policy} with symbolic extents; need stretch")
    rank = len(shape)
    axes = [axis % rank for axis in attrs.get("axes", range(rank))]
    result = list(shape)
    for place, axis in enumerate(axes):
        if sizes is not None:
            result[axis] = normal(sizes[place])
        else:
            result[axis] = scaled(shape[axis], scales[place], axis)
            _require_ratio(shape[axis], scales[place], axis, attrs)
    if tuple(result[:2]) != shape[:2]:
        raise ValueError(f"batch and channels {list(shape[:2])} become {result[:2]}; need the same")
    return tuple(result[2:])


def scaled(extent: Dim, scale: float, axis: int) -> Dim:
    """The extent of the result. Raises ``ValueError`` where it is no whole number."""
    if isinstance(extent, int):
        return scaled_extent(extent, scale)
    size = sympy.expand(extent * sympy.Rational(*fraction_of(scale).as_integer_ratio()))
    if size.is_integer:
        return normal(size)
    name = symbols([extent])[0]
    raise ValueError(
        f"scale {scale:g} of axis {axis}, {extent}, gives no whole number for every {name}; "
        "need an extent that gives one, such as multiples of 32 (32*h), or a fixed one"
    )


def _uneven(extent: Dim, scale: float) -> tuple[Dim, Dim] | None:
    """A symbolic extent and the next one below it that a scale makes a whole number of."""
    factor = fraction_of(scale)
    if is_static([extent]) or factor.denominator > MAX_DENOMINATOR:
        return None
    if sympy.expand(extent * sympy.Rational(*factor.as_integer_ratio())).is_integer:
        return None
    return extent, normal(factor.denominator * sympy.floor(extent / factor.denominator))


def fraction_of(scale: float) -> Fraction:
    """What a scale in fp32 stands for: 1/300, which fp32 does not have, or the scale itself.

    ONNX Runtime multiplies extents by the scale in fp32 and cuts the rest off, which gives the
    whole numbers that the fraction gives, below 2**24, unless the scale falls short of it. The
    ratio of these, rounded to fp32, is the scale again.
    """
    exact = Fraction(float(scale))
    near = exact.limit_denominator(MAX_DENOMINATOR)
    rounded = near and np.float32(near.numerator / near.denominator) == np.float32(scale)
    return near if rounded and near - exact <= near * MAX_SHORTFALL else exact


def _require_ratio(extent: Dim, scale: float, axis: int, attrs: dict[str, Any]) -> None:
    """Refuse a scale that is not the ratio of the sizes, which are all that the kernel knows.

    Corners that are aligned need the sizes alone.
    """
    aligned = attrs.get("coordinate_transformation_mode") == b"align_corners"
    if isinstance(extent, int) and not aligned:
        size = float(np.float32(scale) * np.float32(extent))
        if not size.is_integer():
            raise ValueError(
                f"scale {scale:g} of axis {axis}, {extent}, gives {size:g}; need a whole number"
                " beside symbolic extents"
            )


def old_rounding(scales: Sequence[float]) -> str:
    """How Resize of opset 10 finds the nearest pixel, as ONNX Runtime does: up where it shrinks.

    Raises ``ValueError`` where one axis shrinks and another grows.
    """
    if min(scales) >= 1:
        return "floor"
    if max(scales) > 1:
        raise ValueError(
            f"nearest with scales {list(scales)}, of opset 10; need none below 1 or none above"
        )
    return "ceil"


def resize_options(attrs: dict[str, Any], opset: int) -> dict[str, Any]:
    """The options of ``relax.image.resize2d`` that stand for a node's attributes.

    Raises ``ValueError`` for modes that it does not have.
    """
    mode = attrs.get("mode", b"nearest")
    if mode not in METHODS:
        raise ValueError(f"mode {mode.decode()}; need one of nearest, linear, cubic")
    coordinates, rounding = "half_pixel", "round_prefer_floor"
    if opset < FIRST_WITH_MODES:
        coordinates, rounding = "asymmetric", "floor"
    coordinates = attrs.get("coordinate_transformation_mode", coordinates.encode()).decode()
    if coordinates == "tf_crop_and_resize":
        raise ValueError("tf_crop_and_resize with symbolic extents; need another transformation")
    nearest = attrs.get("nearest_mode", rounding.encode()).decode()
    kept = mode == b"nearest" and nearest in ("floor", "round_prefer_floor")
    if coordinates == "tf_half_pixel_for_nn" and not kept:
        # ONNX Runtime leaves an axis that keeps its size alone, where half a pixel would be added.
        raise ValueError(f"{coordinates} of open sizes, {mode.decode()}, {nearest}; need floor")
    return {
        "roi": DIVIDED,
        "layout": "NCHW",
        "method": METHODS[mode],
        "coordinate_transformation_mode": coordinates,
        "rounding_method": nearest,
        "cubic_alpha": attrs.get("cubic_coeff_a", -0.75),
        "cubic_exclude": attrs.get("exclude_outside", 0),
        "extrapolation_value": attrs.get("extrapolation_value", 0.0),
    }
