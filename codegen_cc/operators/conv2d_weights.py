"""The weight of an fp32 convolution of images in the format of the kernel that reads it.

A constant is packed when compiling.  A weight that is computed, or an input, is packed at each run,
by copies: a format is the weight in another order, whose panels may end in columns that no result
reads, and that stay as they are.
"""

from __future__ import annotations

import numpy as np

from codegen_cc.dim import ceil_div
from codegen_cc.operators.conv2d_ways import Way, is_depthwise
from codegen_cc.operators.packing import (
    FLOAT32_PANELS,
    PANEL,
    pack_conv2d,
    pack_depthwise,
    pack_grouped,
)
from codegen_cc.operators.winograd import pack_winograd
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.tensors import Tensor
from codegen_cc.region.graph import RegionNode


def packed_weight(node: RegionNode, builder: PlanBuilder, way: Way) -> Tensor:
    """The weight in the format of the kernel that computes the node in this way."""
    data, groups = node.role("weight").data, node.node.attrs["groups"]
    if data is None:
        return _computed(node, builder, way)
    if is_depthwise(node.node):
        packed = pack_depthwise(data)
    elif way.tile:
        packed = pack_winograd(data, way.tile)
    elif way.grouped:
        packed = pack_grouped(data, FLOAT32_PANELS)
    elif way.dots:
        packed = np.ascontiguousarray(data.transpose(0, 2, 3, 1))
    else:
        packed = pack_conv2d(data, groups, FLOAT32_PANELS)
    return builder.constant(packed)


def _computed(node: RegionNode, builder: PlanBuilder, way: Way) -> Tensor:
    weight, groups = builder.tensor(node.role("weight")), node.node.attrs["groups"]
    if is_depthwise(node.node):
        return _depthwise(builder, weight)
    if way.dots:
        outputs, inputs, *taps = weight.shape
        filters = builder.space((outputs, *taps, inputs), weight.dtype)
        builder.copy(weight.permute((0, 2, 3, 1)), filters, _text("filters", weight))
        return filters
    return _panels(builder, weight, 1 if way.grouped else groups)


def _depthwise(builder: PlanBuilder, weight: Tensor) -> Tensor:
    """[C, 1, KH, KW] as [KH, KW, 1, C padded to the panel width]."""
    channels, one, *taps = weight.shape
    packed = builder.space((*taps, one, ceil_div(channels, PANEL) * PANEL), weight.dtype)
    target = packed.slice((0,) * 4, (*taps, one, channels), (1,) * 4)
    builder.copy(weight.permute((2, 3, 1, 0)), target, _text("taps", weight))
    return packed


def _panels(builder: PlanBuilder, weight: Tensor, groups: int) -> Tensor:
    """[O, I, KH, KW] as [groups, panels of a group, KH, KW, I, PANEL]."""
    outputs, inputs, height, width = weight.shape
    o, i, h, w = weight.strides
    each = outputs // groups
    shape = (groups, ceil_div(each, PANEL), height, width, inputs, PANEL)
    packed = builder.space(shape, weight.dtype)
    for first, count, columns in ((0, each // PANEL, PANEL), (each // PANEL, 1, each % PANEL)):
        if not count * columns:
            continue
        part = (groups, count, height, width, inputs, columns)
        strides = (o * each, o * PANEL, h, w, i, o)
        source = Tensor(weight.buffer, part, strides, weight.offset + o * PANEL * first)
        target = packed.slice((0, first, 0, 0, 0, 0), part, (1,) * 6)
        builder.copy(source, target, _text("panels", weight))
    return packed


def _text(what: str, weight: Tensor) -> str:
    return f"{what} of a computed weight {list(weight.shape)}"
