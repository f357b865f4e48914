"""conv2d on ``ext_conv2d`` (implicit GEMM over channels-last images) and the depthwise kernel."""

from __future__ import annotations

import numpy as np

from codegen_cc.builder import PlanBuilder
from codegen_cc.call import Struct
from codegen_cc.libraries.builtin.epilogue import epilogue_struct
from codegen_cc.node import Node
from codegen_cc.region import RegionNode
from codegen_cc.tensor import CHANNELS_LAST, Tensor
from codegen_cc.weights import pack_conv2d, pack_depthwise


def supports(node: Node) -> str | None:
    """None if the kernels can compute the convolution, else the reason."""
    return unfit_weight(node, rank=4)


def unfit_weight(node: Node, rank: int) -> str | None:
    """Why a convolution of tensors of that rank cannot be computed, or None."""
    data, weight = node.operand("input"), node.operand("weight")
    if not weight.constant:
        return "weight is not a constant"
    if len(data.shape) != rank or len(weight.shape) != rank:
        return f"ranks {len(data.shape)} and {len(weight.shape)}; need {rank} and {rank}"
    groups = node.attrs["groups"]
    if weight.shape[1] * groups != data.shape[1] or weight.shape[0] % groups:
        return f"groups={groups} does not divide channels {data.shape[1]} -> {weight.shape[0]}"
    if min(node.attrs["padding"]) < 0:
        return f"padding {node.attrs['padding']}; need no negative padding"
    return None


def pixels(builder: PlanBuilder, tensor: Tensor) -> Tensor:
    """The image channels-last, copied only if it is not."""
    return tensor if tensor.pixel_stride() is not None else builder.dense(tensor, CHANNELS_LAST)


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call: ``ext_depthwise_conv2d`` if every channel is its own group, else ``ext_conv2d``."""
    weight, groups = node.role("weight").data, node.node.attrs["groups"]
    pads = node.node.attrs["padding"][:2]
    if groups > 1 and groups == node.inputs[0].shape[1] == node.output.shape[1]:
        call_kernel(node, builder, "ext_depthwise_conv2d", pack_depthwise(weight), pads)
    else:
        call_kernel(node, builder, "ext_conv2d", pack_conv2d(weight, groups), pads)


def call_kernel(
    node: RegionNode, builder: PlanBuilder, function: str, packed: np.ndarray, pads: list[int]
) -> None:
    """Record one call of a kernel that takes ``ext_conv2d_params``, and place its result.

    ``packed`` is the weight in that kernel's format, ``pads`` the padding at the top and the left.
    """
    descriptor = node.node
    attrs = descriptor.attrs
    weight = node.role("weight")
    x = pixels(builder, builder.tensor(node.role("input")))
    residual, residual_stride = None, 0
    if node.role("residual") is not None:
        residual = pixels(builder, builder.tensor(node.role("residual")))
        residual_stride = residual.pixel_stride()
    y = builder.space(descriptor.shape, CHANNELS_LAST)
    fields: dict[str, object] = {
        "batch": x.shape[0],
        "in_h": x.shape[2],
        "in_w": x.shape[3],
        "in_c": x.shape[1],
        "out_h": y.shape[2],
        "out_w": y.shape[3],
        "out_c": y.shape[1],
        "kernel_h": weight.shape[2],
        "kernel_w": weight.shape[3],
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
    epilogue = epilogue_struct(node, builder, residual, residual_stride)
    comment = f"{descriptor.composite}: {list(x.shape)} * {list(weight.shape)} -> {list(y.shape)}"
    arguments = [Struct("ext_conv2d_params", fields), x, builder.constant(packed), epilogue, y]
    builder.call(function, arguments, y, comment)
    builder.place(node.output, y)
