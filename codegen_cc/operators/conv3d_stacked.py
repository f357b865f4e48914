"""Convolutions of volumes of few inputs as convolutions of images that stack what they read.

    y[n, od] = sum_kd conv2d(x[n, od sd + kd dd - front], w[kd])
             = conv2d(x[n, od sd + kd dd - front] for all kd as channels, w)

Each plane of the result is an image, whose channels are those of all planes that its taps of the
depth read, so that a convolution of images sums over the depth in registers.  Copying few inputs
takes less time than packing their short lines of taps, or than reading and writing the result once
for each tap of the depth.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_cc.dim import Dim, normal, product
from codegen_cc.node import Node, Operand
from codegen_cc.operators import conv2d
from codegen_cc.operators.conv3d_images import (
    VOLUMES_LAST,
    as_images,
    dense_view,
    plane_images,
)
from codegen_cc.operators.stacked_planes import stack_planes, with_zeros
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.tensors import CHANNELS_LAST, Tensor
from codegen_cc.region.graph import RegionNode, Value

#: Inputs up to which copying them pays, times the pixels of the input for each of the result.
_FEW_INPUTS = 16


def stack_of(node: Node) -> Node | None:
    """The convolution of images that one of volumes of few inputs is, or None."""
    outputs, inputs, taps, *window = node.operand("weight").shape
    few = inputs * product(node.attrs["strides"][1:]) <= _FEW_INPUTS
    if not few or node.attrs["groups"] != 1 or 1 in (taps, product(window)) or node.compute:
        return None
    images = as_images(node, [1, 2], plane_images)
    x = _padded(node)
    shapes = {
        "input": (product([x[0], node.shape[2]]), taps * inputs, *x[3:]),
        "weight": (outputs, taps * inputs, *window),
    }

    def stacked(operand: Operand) -> Operand:
        return replace(operand, shape=shapes.get(operand.role, operand.shape))

    operands = tuple(map(stacked, images.operands))
    return replace(images, operands=operands, attrs={**images.attrs, "padding": [0] * 4})


def _padded(node: Node) -> tuple[Dim, ...]:
    """The shape of the volumes with the zeros around them that taps read."""
    sides, x = node.attrs["padding"], node.operand("input").shape
    around = zip(x[2:], sides[:3], sides[3:], strict=True)
    return (*x[:2], *(normal(extent + before + after) for extent, before, after in around))


def lower_stack(node: RegionNode, builder: PlanBuilder, images: Node) -> None:
    """Stack the planes, and lower the convolution of images over them."""
    inputs: list[Value] = []
    for operand, value in zip(images.operands, node.inputs, strict=True):
        image = Value(value.name, operand.shape, value.dtype)
        if operand.role == "input":
            builder.place(image, _stack(node.node, builder, value))
        elif operand.role == "weight":
            data = value.data.transpose(0, 2, 1, 3, 4).reshape(operand.shape)
            image = Value(value.name, operand.shape, value.dtype, np.ascontiguousarray(data))
        elif operand.role == "residual":
            volume = builder.dense(builder.tensor(value), VOLUMES_LAST)
            builder.place(image, dense_view(volume, operand.shape, CHANNELS_LAST))
        else:
            image = value
        inputs.append(image)
    output = Value(node.output.name, images.shape, node.output.dtype)
    conv2d.lower(RegionNode(images, inputs, [output]), builder)
    result = dense_view(builder.tensor(output), node.output.shape, VOLUMES_LAST)
    builder.place(node.output, result)


def _stack(node: Node, builder: PlanBuilder, value: Value) -> Tensor:
    """The planes that taps of the depth read, of each plane of the result.

    Short rows of few inputs take less time with zeros in place than with borders to look for.
    """
    volumes = with_zeros(builder, builder.tensor(value), node.attrs["padding"])
    stride, step = (node.attrs[name][0] for name in ("strides", "dilation"))
    taps = node.operand("weight").shape[2]
    return stack_planes(builder, volumes, node.shape[2], (0, stride, step), taps)
