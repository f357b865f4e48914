"""``builtin``: the embedded kernels of ``runtime/``, without any dependency.

One module per kernel family holds, side by side, the rule for taking a node (``supports``) and the
calls that compute it (``lower``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from codegen_cc.libraries.builtin import (
    conv2d,
    elementwise,
    epilogue,
    matmul,
    movement,
    normalisation,
    pooling,
)
from codegen_cc.node import Node

if TYPE_CHECKING:
    from codegen_cc.plan import PlanBuilder
    from codegen_cc.region import RegionNode

FAMILIES = {
    "conv2d": conv2d,
    "matmul": matmul,
    "max_pool2d": pooling,
    "avg_pool2d": pooling,
    "reduce": normalisation,
    "softmax": normalisation,
    "layer_norm": normalisation,
    "unary": elementwise,
    "binary": elementwise,
    "reshape": movement,
    "permute": movement,
    "concat": movement,
    "slice": movement,
    "broadcast_to": movement,
}


class BuiltinLibrary:
    """The kernels of ``ext_kernels.h``: fp32, static shapes, rank up to 8."""

    name = "builtin"

    def supports(self, node: Node) -> str | None:
        """None if the built-in kernels can compute the node, else the reason."""
        family = FAMILIES.get(node.op)
        if family is None:
            return f"operator {node.op} has no kernel"
        for what, dtype in [("result", node.dtype), *((o.role, o.dtype) for o in node.operands)]:
            if dtype != "float32":
                return f"{what} is {dtype}; need float32"
        rank = max([len(node.shape), *(len(operand.shape) for operand in node.operands)])
        if rank > 8:
            return f"rank {rank}; need at most 8"
        return epilogue.supports(node) or family.supports(node)

    def lower(self, node: RegionNode, builder: PlanBuilder) -> None:
        """Record the calls of one node."""
        FAMILIES[node.node.op].lower(node, builder)


BUILTIN = BuiltinLibrary()
