"""Operators of torchvision's detectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from byoc.frontends.torch.values import Graph, Value
from codegen_cc.link.value_sized import NON_MAX_SUPPRESSION

op = relax.op


def roi_align(
    g: Graph,
    input: Value,
    rois: Value,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> relax.Expr:
    """Regions of images, each as so many pixels; those of a ratio below 1 read as many samples as
    they are large."""
    regions, size = g.tensor(rois), (pooled_height, pooled_width)
    if not all(isinstance(extent, int) for extent in size):
        raise ValueError(f"regions of {size} pixels; need known numbers")
    if aligned:  # by half a pixel of the image, which Relax leaves to us
        shift = np.array([0.0, *[-0.5 / spatial_scale] * 4], np.float32)
        regions = g.emit(op.add(regions, relax.const(shift)))
    return op.vision.roi_align(
        g.tensor(input), regions, size, spatial_scale, max(sampling_ratio, 0), aligned
    )


def non_max_suppression(g: Graph, dets: Value, scores: Value, iou_threshold: float) -> relax.Expr:
    """The places of boxes that no better one overlaps by more than this, the best one first."""
    boxes, values = g.tensor(dets, "float32"), g.tensor(scores, "float32")
    operands = [
        op.expand_dims(boxes, 0),
        op.expand_dims(values, [0, 1]),
        relax.const(np.array(np.iinfo(np.int64).max), "int64"),
        relax.const(np.array(iou_threshold), "float32"),
        relax.const(np.array(0), "float32"),
    ]
    corners = relax.ShapeExpr([0, 0])
    rows = relax.TensorType(dtype="int64", ndim=2)
    given = [g.emit(operand) for operand in operands[:2]] + operands[2:]
    found = relax.call_pure_packed(NON_MAX_SUPPRESSION, *given, corners, ty_args=[rows])
    count: Any = g.symbols.found(g.results[0].shape[0])
    whole = g.builder.match_cast(g.emit(found), relax.TensorType([count, 3], "int64"))
    return op.reshape(g.emit(op.strided_slice(whole, [1], [2], [3])), [count])


DETECTION = {
    "torchvision::roi_align": roi_align,
    "torchvision::nms": non_max_suppression,
}
