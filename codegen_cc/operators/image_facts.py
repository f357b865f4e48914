"""What a kernel can be told of images: sizes under the names of ``ext_kernels.h``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from codegen_cc.dim import Dim
from codegen_cc.node import Node
from codegen_cc.operator import Neutral, Number
from codegen_cc.operators.told import unless
from codegen_cc.plan.tensors import Tensor

#: Names that tell what a convolution's block does not say, but many kernels want.
FAR_SIDES = ("pad_bottom", "pad_right")

_PADDING_2D = (
    "pad_top pad_left out_h out_w",
    "pad_top pad_left output.2 output.3",
    "pad_top pad_left pad_bottom pad_right",
)

#: Which names tell the attributes of images, and the size of the batch.
IMAGE_TOLD = {
    "batch": ("batch", "input.0", "output.0"),
    "strides": ("stride_h stride_w",),
    "dilation": ("dilation_h dilation_w",),
    "padding": _PADDING_2D,
}


def image_numbers(node: Node) -> dict[str, Number]:
    """Sizes of input, result, strides, padding and dilation, as dense channels-last images."""
    return sizes_of_images(node.attrs, node.operand("input").shape, node.shape)


def sizes_of_images(
    attrs: Mapping[str, Any], x: tuple[Dim, ...], y: tuple[Dim, ...]
) -> dict[str, Number]:
    """The same from the attributes and the shapes of input and result."""
    batch, channels, in_h, in_w = x
    top, left, bottom, right = attrs["padding"]
    return {
        "batch": batch,
        "in_h": in_h,
        "in_w": in_w,
        "out_h": y[2],
        "out_w": y[3],
        "stride_h": attrs["strides"][0],
        "stride_w": attrs["strides"][1],
        "pad_top": top,
        "pad_left": left,
        "pad_bottom": bottom,
        "pad_right": right,
        "dilation_h": attrs["dilation"][0],
        "dilation_w": attrs["dilation"][1],
        "x_stride": channels,
        "y_stride": y[1],
    }


def convolution_fields(
    attrs: Mapping[str, Any], x: Tensor, y: Tensor, kernel: Sequence[int], pads: Sequence[int]
) -> dict[str, object]:
    """The ``ext_conv2d_params`` of images x and y as they lie.

    ``attrs`` are strides, dilation and groups, ``pads`` the padding at the top and the left.
    """
    return {
        "batch": x.shape[0],
        "in_h": x.shape[2],
        "in_w": x.shape[3],
        "in_c": x.shape[1],
        "out_h": y.shape[2],
        "out_w": y.shape[3],
        "out_c": y.shape[1],
        "kernel_h": kernel[0],
        "kernel_w": kernel[1],
        "stride_h": attrs["strides"][0],
        "stride_w": attrs["strides"][1],
        "pad_top": pads[0],
        "pad_left": pads[1],
        "dilation_h": attrs["dilation"][0],
        "dilation_w": attrs["dilation"][1],
        "groups": attrs["groups"],
        "x_stride": x.pixel_stride(),
        "y_stride": y.pixel_stride(),
    }


def dense_images(x: Tensor, y: Tensor) -> dict[str, Number]:
    """Sizes of images x and y [N, C, H, W] that lie densely, of as many channels; of volumes, of
    their planes."""
    return {
        "batch": x.shape[0],
        "in_h": x.shape[-2],
        "in_w": x.shape[-1],
        "out_h": y.shape[-2],
        "out_w": y.shape[-1],
        "channels": x.shape[1],
    }


def _one_image(node: Node, told: Collection[str]) -> bool:
    del told
    return node.shape[0] == 1


def padding(node: Node, told: Collection[str]) -> bool:
    """Nothing is padded, or both sides alike: a kernel infers the far sides from the near ones."""
    pads = node.attrs["padding"]
    near, far = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    sides = ("front", "top", "left")[-len(near) :]
    return not any(pads) or (near == far and all(f"pad_{side}" in told for side in sides))


#: Which attributes of images need not be told, and when.
IMAGE_NEUTRAL: dict[str, Neutral] = {
    "batch": _one_image,
    "strides": unless("strides", 1),
    "dilation": unless("dilation", 1),
    "padding": padding,
    "groups": unless("groups", 1),
}
