"""conv2d_transpose on ``ext_conv2d_transpose``."""

from __future__ import annotations

from codegen_cc.dim import Dim, product
from codegen_cc.node import Node
from codegen_cc.operator import Kernels, Layout, Operator
from codegen_cc.operators.conv2d import (
    CONVOLUTION_ATTRIBUTES,
    CONVOLUTION_FACTS,
    call_kernel,
    convolution_samples,
)
from codegen_cc.operators.dtype_rules import only_single
from codegen_cc.operators.epilogue import FULL_EPILOGUE
from codegen_cc.operators.operands import not_constant
from codegen_cc.operators.packing import FLOAT32_PANELS, pack_conv2d_transpose
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.region.graph import RegionNode


def supports(node: Node) -> str | None:
    """None if the kernel can compute the transposed convolution, else the reason."""
    data, weight = node.operand("input"), node.operand("weight")
    if not weight.constant:
        return not_constant(weight)
    if len(data.shape) != 4 or len(weight.shape) != 4:
        return f"ranks {len(data.shape)} and {len(weight.shape)}; need 4 and 4"
    groups = node.attrs["groups"]
    if weight.shape[0] != data.shape[1] or weight.shape[0] % groups:
        return f"groups={groups}, weight {list(weight.shape)}; do not fit input {list(data.shape)}"
    if weight.shape[1] * groups != node.shape[1]:
        return f"weight {list(weight.shape)} does not give {node.shape[1]} channels"
    if min(node.attrs["padding"]) < 0:
        return f"padding {node.attrs['padding']}; need no negative padding"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_conv2d_transpose``."""
    attrs = node.node.attrs
    packed = pack_conv2d_transpose(node.role("weight").data, attrs["groups"], FLOAT32_PANELS)
    weight = builder.constant(packed)
    call_kernel(node, builder, "ext_conv2d_transpose", weight, attrs["padding"][:2])


def _macs(node: Node) -> Dim:
    """Every element of the input meets each weight of its filter."""
    return product(node.operand("input").shape) * product(node.operand("weight").shape[1:])


CONV2D_TRANSPOSE = Operator(
    "conv2d_transpose",
    roles=("input", "weight"),
    attributes=CONVOLUTION_ATTRIBUTES | {"output_padding": "one per axis of the image"},
    macs=_macs,
    layout=Layout.IMAGE,
    epilogue=FULL_EPILOGUE,
    channel_axis=1,
    weight_layout="IOHW",
    facts=CONVOLUTION_FACTS,
    kernels=Kernels(lower, only_single, supports),
    samples=lambda: convolution_samples("conv2d_transpose", 2),
)

OPERATORS = (CONV2D_TRANSPOSE,)
