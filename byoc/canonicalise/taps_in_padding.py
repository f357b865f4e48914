"""Leave out the taps of a convolution that meet nothing but padding.

A kernel that is dilated by more than the image is large, as those of DeepLab's pyramid on small
images, reads pixels with its middle row and column alone; the rest multiplies zeros.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from tvm import relax

from byoc.ir.dataflow import Block, array_of, constant, is_kernel_float, shape_of


class _Taps(NamedTuple):
    """The taps of an axis that are kept, and the pixels of padding before and after it then."""

    first: int
    end: int
    before: int
    after: int


def without_taps_in_padding(block: Block) -> None:
    """Rewrite convolutions of images of known height and width with stored weights."""
    for var, call in block.calls("relax.nn.conv2d"):
        image, weight, attrs = shape_of(call.args[0]), array_of(call.args[1]), call.attrs
        if image is None or weight is None or weight.ndim != 4 or 0 in weight.shape:
            continue
        if (attrs.data_layout, attrs.kernel_layout) != ("NCHW", "OIHW") or not is_kernel_float(var):
            continue
        if not all(isinstance(extent, int) and extent > 0 for extent in image[2:]):
            continue
        pads = [int(pad) for pad in attrs.padding]
        rows, columns = (
            _met(image[2 + a], weight.shape[2 + a], int(attrs.strides[a]),
                 int(attrs.dilation[a]), pads[a], pads[2 + a])
            for a in (0, 1)
        )  # fmt: skip
        if (rows.end - rows.first, columns.end - columns.first) == weight.shape[2:]:
            continue
        kept = weight[:, :, rows.first : rows.end, columns.first : columns.end]
        value = relax.op.nn.conv2d(
            call.args[0],
            constant(np.ascontiguousarray(kept), str(kept.dtype)),
            strides=list(attrs.strides),
            padding=[rows.before, columns.before, rows.after, columns.after],
            dilation=list(attrs.dilation),
            groups=int(attrs.groups),
        )
        block.replace(var, value)


def _met(extent: int, taps: int, stride: int, dilation: int, before: int, after: int) -> _Taps:
    """The taps between the first and the last one that meet the axis, as far as pads stay 0 or
    more; all of them where none does."""
    outputs = (extent + before + after - (taps - 1) * dilation - 1) // stride + 1
    places = stride * np.arange(outputs) - before
    met = [
        tap
        for tap in range(taps)
        if ((places + tap * dilation >= 0) & (places + tap * dilation < extent)).any()
    ]
    if not met:
        return _Taps(0, taps, before, after)
    first = min(met[0], before // dilation)
    last = max(met[-1], taps - 1 - after // dilation)
    return _Taps(first, last + 1, before - first * dilation, after - (taps - 1 - last) * dilation)
