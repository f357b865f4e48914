"""Rows of resizing an image, and of reading it at places that a grid or a region names."""

from __future__ import annotations

from typing import Any

from tvm import relax

from byoc.patterns.row import Candidate, Row, Unfit, candidate, need_layout

#: Names of the methods of ``relax.image.resize2d`` in a node.
METHODS = {"nearest_neighbor": "nearest", "linear": "linear", "cubic": "cubic"}

#: The coordinate transformation that reads the region of interest.
CROPPING = "tf_crop_and_resize"

#: Says that positions are divided by the scale, as ONNX Runtime does: a region of interest that is
#: the whole image.  TVM's operator has no attribute for it, and reads the region for crops alone;
#: importers of TVM leave it at zeros.
DIVIDED = [0.0, 0.0, 1.0, 1.0]


def build_resize2d(call: relax.Call) -> Candidate:
    """NCHW image; the size is that of the result."""
    attrs = call.attrs
    need_layout("layout", attrs.layout, "NCHW")
    method = METHODS.get(str(attrs.method))
    if method is None:
        raise Unfit(f"method {attrs.method}; need one of {', '.join(METHODS)}")
    if attrs.coordinate_transformation_mode == CROPPING:
        raise Unfit(f"coordinate transformation {CROPPING}; need one without a region of interest")
    return candidate(
        "resize2d",
        call,
        [("input", call.args[0])],
        {
            "method": method,
            "coordinate": str(attrs.coordinate_transformation_mode),
            "rounding": str(attrs.rounding_method) or _default_rounding(attrs),
            "cubic_alpha": float(attrs.cubic_alpha),
            "cubic_exclude": bool(attrs.cubic_exclude),
            "divided": [float(share) for share in attrs.roi] == DIVIDED,
        },
    )


def _default_rounding(attrs: Any) -> str:
    """What TVM rounds by if the call does not say."""
    return "round" if attrs.coordinate_transformation_mode == "align_corners" else "floor"


def build_grid_sample(call: relax.Call) -> Candidate:
    """NCHW image, grid [N, 2, H, W] of columns and rows; or NCDHW, grid [N, 3, D, H, W]."""
    attrs = call.attrs
    need_layout("layout", attrs.layout, "NCDHW" if call.args[0].ty.ndim == 5 else "NCHW")
    return candidate(
        "grid_sample",
        call,
        [("input", call.args[0]), ("grid", call.args[1])],
        {
            "method": str(attrs.method),
            "padding": str(attrs.padding_mode),
            "align_corners": bool(attrs.align_corners),
        },
    )


def build_roi_align(call: relax.Call) -> Candidate:
    """NCHW image and regions [R, 5], of which the mean is asked for."""
    attrs = call.attrs
    need_layout("layout", attrs.layout, "NCHW")
    if str(attrs.mode) != "avg":
        raise Unfit(f"mode {attrs.mode}; need avg")
    return candidate(
        "roi_align",
        call,
        [("input", call.args[0]), ("regions", call.args[1])],
        {
            "samples": max(int(attrs.sample_ratio), 0),
            "scale": float(attrs.spatial_scale),
            "aligned": bool(attrs.aligned),
        },
    )


def build_roi_pool(call: relax.Call) -> Candidate:
    """NCHW image and regions [R, 5], of which the greatest is asked for."""
    need_layout("layout", call.attrs.layout, "NCHW")
    operands = [("input", call.args[0]), ("regions", call.args[1])]
    return candidate("roi_max", call, operands, {"scale": float(call.attrs.spatial_scale)})


IMAGE_ROWS = (
    Row("relax.image.resize2d", build_resize2d, "resize2d"),
    Row("relax.image.grid_sample", build_grid_sample, "grid_sample"),
    Row("relax.vision.roi_align", build_roi_align, "roi_align"),
    Row("relax.vision.roi_pool", build_roi_pool, "roi_max"),
)
