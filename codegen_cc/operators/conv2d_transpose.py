"""conv2d_transpose: a product whose windows are added up, or convolutions by place in a stride."""

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
from codegen_cc.operators.conv2d_transpose_phases import lower_phases, prefers_phases
from codegen_cc.operators.dtype_rules import only_single
from codegen_cc.operators.epilogue import FULL_EPILOGUE
from codegen_cc.operators.operands import not_constant
from codegen_cc.operators.packing import FLOAT32_PANELS, pack_conv2d_transpose
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.region.graph import RegionNode


def supports(node: Node) -> str | None:
    """None if the kernel can compute the transposed convolution, else the reason."""
    return unfit_transposed(node, rank=4)


def unfit_transposed(node: Node, rank: int) -> str | None:
    """Why a transposed convolution of tensors of that rank cannot be computed, or None."""
    data, weight = node.operand("input"), node.operand("weight")
    if not weight.constant:
        return not_constant(weight)
    if len(data.shape) != rank or len(weight.shape) != rank:
        return f"ranks {len(data.shape)} and {len(weight.shape)}; need {rank} and {rank}"
    groups = node.attrs["groups"]
    if weight.shape[0] != data.shape[1] or weight.shape[0] % groups:
        return f"groups={groups}, weight {list(weight.shape)}; do not fit input {list(data.shape)}"
    if weight.shape[1] * groups != node.shape[1]:
        return f"weight {list(weight.shape)} does not give {node.shape[1]} channels"
    if min(node.attrs["padding"]) < 0:
        return f"padding {node.attrs['padding']}; need no negative padding"
    return None


_PHASES, _WINDOWS = "implicit GEMM for each place in a stride", "GEMM, windows added up"


def algorithms(node: Node) -> tuple[str, ...]:
    """The names of the ways to compute a node, the own choice first."""
    return (_PHASES, _WINDOWS) if prefers_phases(node) else (_WINDOWS,)


def algorithm(node: Node) -> str:
    """The name of the way that the node says or that is chosen."""
    known = algorithms(node)
    return node.algorithm if node.algorithm in known else known[0]


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_conv2d_transpose``, or calls of ``ext_conv2d_apart``."""
    if algorithm(node.node) == _PHASES:
        lower_phases(node, builder)
        return
    attrs = node.node.attrs
    packed = pack_conv2d_transpose(node.role("weight").data, attrs["groups"], FLOAT32_PANELS)
    weight = builder.constant(packed)
    call_kernel(node, builder, "ext_conv2d_transpose", weight, attrs["padding"][:2])


def transposed_macs(node: Node) -> Dim:
    """Every element of the input meets each weight of its filter."""
    return product(node.operand("input").shape) * product(node.operand("weight").shape[1:])


CONV2D_TRANSPOSE = Operator(
    "conv2d_transpose",
    roles=("input", "weight"),
    attributes=CONVOLUTION_ATTRIBUTES | {"output_padding": "one per axis of the image"},
    macs=transposed_macs,
    layout=Layout.IMAGE,
    epilogue=FULL_EPILOGUE,
    channel_axis=1,
    weight_layout="IOHW",
    facts=CONVOLUTION_FACTS,
    kernels=Kernels(lower, only_single, supports, algorithm, algorithms),
    samples=lambda: convolution_samples("conv2d_transpose", 2),
)

OPERATORS = (CONV2D_TRANSPOSE,)
