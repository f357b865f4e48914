"""What a kernel can be told of images: sizes under the names of ``ext_kernels.h``."""

from __future__ import annotations

from collections.abc import Collection

from codegen_cc.node import Node
from codegen_cc.operator import Neutral, Number
from codegen_cc.operators.told import unless

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
    attrs = node.attrs
    batch, _, in_h, in_w = node.operand("input").shape
    top, left, bottom, right = attrs["padding"]
    return {
        "batch": batch,
        "in_h": in_h,
        "in_w": in_w,
        "out_h": node.shape[2],
        "out_w": node.shape[3],
        "stride_h": attrs["strides"][0],
        "stride_w": attrs["strides"][1],
        "pad_top": top,
        "pad_left": left,
        "pad_bottom": bottom,
        "pad_right": right,
        "dilation_h": attrs["dilation"][0],
        "dilation_w": attrs["dilation"][1],
        "x_stride": node.operand("input").shape[1],
        "y_stride": node.shape[1],
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
