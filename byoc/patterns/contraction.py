"""Rows of convolution and matrix product."""

from __future__ import annotations

from tvm import relax

from .row import (
    ACTIVATION,
    BIAS,
    RESIDUAL,
    Candidate,
    Row,
    Unfit,
    candidate,
    four_sides,
    integers,
    need_layout,
)


def build_conv2d(call: relax.Call) -> Candidate:
    """NCHW image, OIHW weight."""
    attrs = call.attrs
    need_layout("data_layout", attrs.data_layout, "NCHW")
    need_layout("kernel_layout", attrs.kernel_layout, "OIHW")
    need_layout("out_layout", attrs.out_layout, "NCHW")
    return candidate(
        "conv2d",
        call,
        zip(("input", "weight"), call.args, strict=True),
        {
            "strides": integers(attrs.strides),
            "padding": four_sides(attrs.padding),
            "dilation": integers(attrs.dilation),
            "groups": int(attrs.groups),
        },
    )


def build_conv2d_transpose(call: relax.Call) -> Candidate:
    """NCHW image, IOHW weight."""
    attrs = call.attrs
    need_layout("data_layout", attrs.data_layout, "NCHW")
    need_layout("kernel_layout", attrs.kernel_layout, "IOHW")
    need_layout("out_layout", attrs.out_layout, "NCHW")
    return candidate(
        "conv2d_transpose",
        call,
        zip(("input", "weight"), call.args, strict=True),
        {
            "strides": integers(attrs.strides),
            "padding": four_sides(attrs.padding),
            "dilation": integers(attrs.dilation),
            "output_padding": integers(attrs.output_padding),
            "groups": int(attrs.groups),
        },
    )


def build_conv3d(call: relax.Call) -> Candidate:
    """NCDHW volume, OIDHW weight; padding is front, top, left, back, bottom, right."""
    attrs = call.attrs
    need_layout("data_layout", attrs.data_layout, "NCDHW")
    need_layout("kernel_layout", attrs.kernel_layout, "OIDHW")
    need_layout("out_layout", attrs.out_layout, "NCDHW")
    padding = integers(attrs.padding)
    if len(padding) != 6:
        padding = padding * (6 // len(padding))
    return candidate(
        "conv3d",
        call,
        zip(("input", "weight"), call.args, strict=True),
        {
            "strides": integers(attrs.strides),
            "padding": padding,
            "dilation": integers(attrs.dilation),
            "groups": int(attrs.groups),
        },
    )


def build_matmul(call: relax.Call) -> Candidate:
    """Both sides of rank 2 at least; leading axes are batch and broadcast."""
    for role, argument in zip(("lhs", "rhs"), call.args, strict=True):
        if argument.ty.ndim < 2:
            raise Unfit(f"{role} has rank {argument.ty.ndim}; need 2 or more")
    return candidate("matmul", call, zip(("lhs", "rhs"), call.args, strict=True))


FULL_EPILOGUE = (BIAS, ACTIVATION, RESIDUAL, ACTIVATION)

CONTRACTION_ROWS = (
    Row("relax.nn.conv2d", build_conv2d, FULL_EPILOGUE, channel_axis=-3),
    Row("relax.nn.conv2d_transpose", build_conv2d_transpose, FULL_EPILOGUE, channel_axis=-3),
    Row("relax.nn.conv3d", build_conv3d, FULL_EPILOGUE, channel_axis=-4),
    Row("relax.matmul", build_matmul, FULL_EPILOGUE, channel_axis=-1),
)
