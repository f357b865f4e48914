"""ONNX's Resize of images whose height and width are symbolic.

TVM's converter computes sizes in fp32, which leaves expressions that nothing can be proved of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy

from codegen_cc.dim import Dim, normal, symbols

#: Methods of ``relax.image.resize2d`` by ONNX's modes.
METHODS = {b"nearest": "nearest_neighbor", b"linear": "linear", b"cubic": "cubic"}

#: Before this opset there was one coordinate transformation, and scales were the second input.
FIRST_WITH_MODES = 11


def resized(
    shape: tuple[Dim, ...],
    scales: Sequence[float] | None,
    sizes: Sequence[Dim] | None,
    attrs: dict[str, Any],
) -> tuple[Dim, ...]:
    """Height and width of the result for an image [batch, channels, height, width].

    Raises ``ValueError`` where they are no whole numbers for every value of the symbols, or where
    an attribute asks for what has no kernel.
    """
    if attrs.get("antialias"):
        raise ValueError("antialias=1 with symbolic extents; need 0")
    policy = attrs.get("keep_aspect_ratio_policy", b"stretch").decode()
    if policy != "stretch":
        raise ValueError(f"keep_aspect_ratio_policy {policy} with symbolic extents; need stretch")
    axes = [axis % 4 for axis in attrs.get("axes", range(4))]
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
        return int(np.float32(scale) * np.float32(extent))
    size = sympy.expand(extent * sympy.Rational(*float(scale).as_integer_ratio()))
    if size.is_integer:
        return normal(size)
    name = symbols([extent])[0]
    raise ValueError(
        f"scale {scale:g} of axis {axis}, {extent}, gives no whole number for every {name}; "
        "need an extent that gives one, such as multiples of 32 (32*h), or a fixed one"
    )


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
    return {
        "roi": [0.0] * 4,
        "layout": "NCHW",
        "method": METHODS[mode],
        "coordinate_transformation_mode": coordinates,
        "rounding_method": attrs.get("nearest_mode", rounding.encode()).decode(),
        "cubic_alpha": attrs.get("cubic_coeff_a", -0.75),
        "cubic_exclude": attrs.get("exclude_outside", 0),
        "extrapolation_value": attrs.get("extrapolation_value", 0.0),
    }
