"""adaptive_avg_pool2d: an image [N, C, H, W] as the means of oh x ow windows, [N, C, oh, ow].

Windows begin at the product of their number and the share of the image, rounded down, and end
before that of the next one, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Layout, Operator
from codegen_cc.operators.dtype_rules import only_single
from codegen_cc.operators.image_facts import dense_images
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import CHANNELS_LAST
from codegen_cc.region.graph import RegionNode


def supports(node: Node) -> str | None:
    """None if the kernel can compute the node, else the reason."""
    rank = len(node.operand("input").shape)
    return None if rank == 4 else f"input rank {rank}; need 4"


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_adaptive_avg_pool2d``."""
    x = builder.dense(builder.tensor(node.role("input")), CHANNELS_LAST)
    y = builder.space(node.node.shape, node.node.dtype, CHANNELS_LAST)
    params = Struct("ext_adaptive_pool_params", dict(dense_images(x, y)))
    comment = f"{node.node.composite}: {list(x.shape)} -> {list(y.shape)}"
    builder.call("ext_adaptive_avg_pool2d", [params, x, y], y, comment)
    builder.place(node.output, y)


def _samples() -> Iterator[Sample]:
    operands = {"input": ((1, 16, 9, 10), REAL)}
    yield Sample("", sample_node("adaptive_avg_pool2d", operands, (1, 16, 4, 3)))


OPERATORS = (
    Operator(
        "adaptive_avg_pool2d",
        roles=("input",),
        about="means of as many windows as the result has elements",
        layout=Layout.IMAGE,
        facts=Facts(ranks={"input": 4}),
        kernels=Kernels(lower, only_single, supports),
        samples=_samples,
    ),
)
