"""Padding by name, SAME_UPPER and SAME_LOWER, of images whose sides are symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import lt
from typing import Any

import numpy as np
import tvm
from tvm import relax

from byoc.frontends.onnx.same_padding import same_begins, same_pads
from byoc.frontends.onnx.symbolic_pad import joined
from byoc.ir.dataflow import bound, dtype_of, op_name, scalar_of, shape_of
from codegen_cc.dim import Dim, ceil_div, is_static, normal, quotient
from codegen_cc.dtypes import KERNEL_BYTES

Extent = Callable[[Dim], int | tvm.ir.Expr]


def same_padded(
    bb: relax.BlockBuilder,
    op_name: str,
    inputs: list[relax.Expr | None],
    attrs: dict[str, Any],
    extent: Extent,
) -> tuple[dict[str, Any], relax.Expr | None]:
    """Attributes of a convolution or pool with pads in place of their name.

    Where pads depend on a size, they are put around the image in ``inputs``. A mean that does not
    count them is then the mean of zeros and elements, by that of the second result: an image of
    zeros and ones.
    """
    shape = shape_of(inputs[0])
    kernel = attrs.get("kernel_shape") or (shape_of(inputs[1]) or ())[2:]
    if shape is None or is_static(shape) or len(kernel) + 2 != len(shape):
        return attrs, None
    ones = [1] * len(kernel)
    strides, dilations = (list(attrs.get(name, ones)) for name in ("strides", "dilations"))
    lower, pool = attrs["auto_pad"] == b"SAME_LOWER", len(inputs) == 1
    attrs = {**attrs, "auto_pad": b"NOTSET"}
    attrs.pop("ceil_mode", None)  # as many windows as strides begin in the image, with and without
    windows = (kernel, strides, dilations, lower, pool)
    if pool and (set(dilations) != {1} or any(map(lt, kernel, strides))):
        pads = same_pads(shape[2:], *windows)
        if pads is None:
            raise ValueError(f"auto_pad of pools with holes in or between windows, {list(shape)}")
        return {**attrs, "pads": pads}, None
    pads = same_pads(shape[2:], *windows) or _pads_for_all(*windows[:4])
    if pads is not None:
        return {**attrs, "pads": pads}, None
    sides = {
        axis + 2: _sides(size, (taps - 1) * gap + 1, step, lower)
        for axis, (size, taps, step, gap) in enumerate(
            zip(shape[2:], kernel, strides, dilations, strict=True)
        )
    }
    source, fill = inputs[0], 0.0
    if op_name == "MaxPool":
        kind = np.dtype(dtype_of(source))
        fill = -np.inf if kind.kind == "f" else np.iinfo(kind).min
    inputs[0] = _around(bb, source, sides, fill, extent)
    attrs["pads"] = [0] * 2 * len(kernel)
    if op_name != "AveragePool" or attrs.get("count_include_pad"):
        return attrs, None
    counted = relax.ShapeExpr([1, 1, *(extent(size) for size in shape[2:])])
    whole = bb.normalize(relax.op.full(counted, relax.const(1.0, dtype_of(source))))
    return attrs, joined(bb, whole, sides, 0.0, extent)


def _around(
    bb: relax.BlockBuilder,
    source: relax.Expr,
    sides: Mapping[int, tuple[Dim, Dim]],
    fill: float,
    extent: Extent,
) -> relax.Expr:
    """An image in a border; the border of a quantised one is its zero point, so that a product
    reads what was dequantised, and is one of integers."""
    call = bound(bb, source)
    zero = scalar_of(call.args[2]) if op_name(call) == "relax.dequantize" else None
    if fill != 0 or zero is None or dtype_of(call.args[0]) not in KERNEL_BYTES:
        return joined(bb, source, sides, fill, extent)
    whole = joined(bb, call.args[0], sides, int(zero), extent)
    numbers = (*call.args[1:], int(call.attrs.axis), dtype_of(source))
    return bb.normalize(relax.op.dequantize(whole, *numbers))


def _pads_for_all(
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    lower: bool,
) -> list[int] | None:
    """Pads that do for all sizes, where the first window begins at the same place for all.

    One element less than the window gives as many windows as SAME does, of which the last may look
    at more padding.
    """
    begins, ends = [], []
    for taps, step, gap in zip(kernel, strides, dilations, strict=True):
        reach = (taps - 1) * gap + 1
        found = same_begins(reach, step, lower)
        if len(found) > 1:
            return None
        begins += found
        ends.append(reach - 1 - begins[-1])
    return [*begins, *ends]


def _sides(size: Dim, reach: int, step: int, lower: bool) -> tuple[Dim, Dim]:
    """The elements before and after an axis; those that no window needs are not cut off."""
    found = same_begins(reach, step, lower)
    if len(found) == 1:
        (begin,) = found
        return begin, reach - 1 - begin
    total = normal(ceil_div(size, step) * step - step + reach - size)
    if reach < step:
        raise ValueError(f"auto_pad of windows of {reach} with stride {step}; need sizes")
    small = quotient(total, 2)
    large = normal(total - small)
    return (large, small) if lower else (small, large)
