"""conv3d_transpose: convolutions of images for each place of a result in the strides.

Planes of the result that lie a stride apart have the same taps of the depth. The planes that these
read are stacked as channels of images, whose transposed convolution gives those planes.
"""

from __future__ import annotations

from typing import Any

from codegen_cc.dim import Dim, ceil_div, larger, normal
from codegen_cc.node import Node
from codegen_cc.operator import Kernels, Operator
from codegen_cc.operators.conv2d import CONVOLUTION_ATTRIBUTES, convolution_samples
from codegen_cc.operators.conv2d_transpose import transposed_macs, unfit_transposed
from codegen_cc.operators.conv2d_transpose_phases import (
    Phase,
    call_phases,
    node_has_all_taps,
    phases,
    with_inputs_inside,
)
from codegen_cc.operators.conv3d import CONV3D_FACTS
from codegen_cc.operators.conv3d_images import VOLUMES_LAST, dense_view, plane_images
from codegen_cc.operators.dtype_rules import only_single
from codegen_cc.operators.epilogue import FULL_EPILOGUE, epilogue_struct
from codegen_cc.operators.image_facts import convolution_fields
from codegen_cc.operators.placement import Placement
from codegen_cc.operators.stacked_planes import stack_planes, with_zeros
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import CHANNELS_LAST, Tensor
from codegen_cc.region.graph import RegionNode


def supports(node: Node) -> str | None:
    """None if the kernels can compute the transposed convolution, else the reason."""
    if reason := unfit_transposed(node, rank=5):
        return reason
    if not node_has_all_taps(node):
        kernel, strides = list(node.operand("weight").shape[2:]), node.attrs["strides"]
        return f"kernel {kernel}, strides {strides}; need a tap for every result, 64 places at most"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """Stack planes and call ``ext_conv2d_apart`` for each place in the strides."""
    descriptor, residual = node.node, None
    if node.role("residual") is not None:
        residual = builder.dense(builder.tensor(node.role("residual")), VOLUMES_LAST)
    y = builder.space(descriptor.shape, descriptor.dtype, VOLUMES_LAST)
    epilogue = epilogue_struct(node, builder, residual, descriptor.shape[1])
    found = _depths(descriptor)
    front, behind = _reach(descriptor, found)
    x = with_zeros(builder, builder.tensor(node.role("input")), [front, 0, 0, behind, 0, 0])
    weight, groups = node.role("weight").data, descriptor.attrs["groups"]
    for phase in found:
        count = _planes(descriptor, phase)
        read, taps = (phase.begin + front, 1, phase.gap), len(phase.taps)
        images = stack_planes(builder, x, count, read, taps, groups)
        params = Struct("ext_conv2d_params", _fields(descriptor, images, y))
        comment = f"{descriptor.composite}: {list(images.shape)} -> {list(y.shape)}"
        placed = Placement(
            params, {"input": images}, epilogue, y, f"{comment}, planes from {phase.first} on"
        )
        some = with_inputs_inside(weight[:, :, phase.taps], groups)
        stride = descriptor.attrs["strides"][0]
        at = {"depth": y.shape[2], "first_d": phase.first, "step_d": stride, "planes": count}
        call_phases(builder, placed, some, at)
    builder.place(node.output, y)


def _depths(node: Node) -> list[Phase]:
    attrs = node.attrs
    numbers = (attrs[name][0] for name in ("strides", "dilation", "padding"))
    return list(phases(node.operand("weight").shape[2], *numbers))


def _planes(node: Node, phase: Phase) -> Dim:
    """Planes of the result that have the taps."""
    return ceil_div(node.shape[2] - phase.first, node.attrs["strides"][0])


def _reach(node: Node, found: list[Phase]) -> tuple[int, Dim]:
    """Planes of zeros that taps of the depth read, before the volumes and behind."""
    depth = node.operand("input").shape[2]
    before = max(0, *(-phase.begin for phase in found))
    behind: Dim = 0
    for phase in found:
        last = _planes(node, phase) - 1 + phase.begin + (len(phase.taps) - 1) * phase.gap
        past = normal(last - (depth - 1))
        behind = larger(behind, past)
    return before, behind


def _fields(node: Node, images: Tensor, y: Tensor) -> dict[str, object]:
    """The transposed convolution of images."""
    attrs: dict[str, Any] = {"groups": node.attrs["groups"]}
    attrs |= {name: node.attrs[name][1:] for name in ("strides", "dilation")}
    planes = dense_view(y, plane_images(y.shape), CHANNELS_LAST)
    kernel, pads = node.operand("weight").shape[3:], node.attrs["padding"][1:3]
    return convolution_fields(attrs, images, planes, kernel, pads)


CONV3D_TRANSPOSE = Operator(
    "conv3d_transpose",
    roles=("input", "weight"),
    attributes=CONVOLUTION_ATTRIBUTES | {"output_padding": "one per axis of the image"},
    macs=transposed_macs,
    epilogue=FULL_EPILOGUE,
    channel_axis=1,
    weight_layout="IODHW",
    facts=CONV3D_FACTS,
    kernels=Kernels(lower, only_single, supports),
    samples=lambda: convolution_samples("conv3d_transpose", 3),
)

OPERATORS = (CONV3D_TRANSPOSE,)
