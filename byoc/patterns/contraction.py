"""Rows of convolution and matrix product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from byoc.patterns.row import (
    Candidate,
    Row,
    Unfit,
    all_sides,
    candidate,
    integers,
    need_layout,
    tensor,
)


def convolution(op: str, data_layout: str, kernel_layout: str) -> Callable[..., Candidate]:
    """The builder of a convolution of tensors with these layouts.

    Padding is that before every axis, then that after every axis.
    """
    axes = len(data_layout) - 2

    def build(call: relax.Call) -> Candidate:
        attrs = call.attrs
        need_layout("data_layout", attrs.data_layout, data_layout)
        need_layout("kernel_layout", attrs.kernel_layout, kernel_layout)
        need_layout("out_layout", attrs.out_layout, data_layout)
        values: dict[str, Any] = {
            "strides": integers(attrs.strides),
            "padding": all_sides(attrs.padding, axes),
            "dilation": integers(attrs.dilation),
        }
        if op.endswith("_transpose"):
            values["output_padding"] = integers(attrs.output_padding)
        values["groups"] = int(attrs.groups)
        return candidate(op, call, zip(("input", "weight"), call.args, strict=True), values)

    return build


def build_matmul(call: relax.Call) -> Candidate:
    """Both sides of rank 2 at least; leading axes are batch and broadcast."""
    for role, argument in zip(("lhs", "rhs"), call.args, strict=True):
        rank = len(tensor(argument, role).shape)
        if rank < 2:
            raise Unfit(f"{role} has rank {rank}; need 2 or more")
    return candidate("matmul", call, zip(("lhs", "rhs"), call.args, strict=True))


CONTRACTION_ROWS = (
    *(
        Row(f"relax.nn.{op}", convolution(op, data, kernel), op)
        for op, data, kernel in (
            ("conv2d", "NCHW", "OIHW"),
            ("conv2d_transpose", "NCHW", "IOHW"),
            ("conv3d", "NCDHW", "OIDHW"),
            ("conv3d_transpose", "NCDHW", "IODHW"),
        )
    ),
    Row("relax.matmul", build_matmul, "matmul"),
)
