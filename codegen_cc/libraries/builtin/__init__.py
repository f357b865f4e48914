"""``builtin``: the embedded kernels of ``runtime/``, without any dependency.

One module per kernel family holds, side by side, the rule for taking a node (``supports``) and the
calls that compute it (``lower``).
"""

from __future__ import annotations

from codegen_cc.builder import PlanBuilder
from codegen_cc.libraries.builtin import (
    attention,
    conv2d,
    conv2d_transpose,
    conv3d,
    dtypes,
    elementwise,
    epilogue,
    indexing,
    logic,
    matmul,
    movement,
    normalisation,
    pad,
    pooling,
    resize2d,
    scan,
)
from codegen_cc.node import Node
from codegen_cc.region import RegionNode

FAMILIES = {
    "conv2d": conv2d,
    "conv2d_transpose": conv2d_transpose,
    "conv3d": conv3d,
    "matmul": matmul,
    "attention": attention,
    "max_pool2d": pooling,
    "avg_pool2d": pooling,
    "reduce": normalisation,
    "softmax": normalisation,
    "layer_norm": normalisation,
    "rms_norm": normalisation,
    "argreduce": scan,
    "cumsum": scan,
    "unary": elementwise,
    "binary": elementwise,
    "compare": logic,
    "logical": logic,
    "where": logic,
    "cast": logic,
    "take": indexing,
    "pad": pad,
    "resize2d": resize2d,
    "reshape": movement,
    "permute": movement,
    "concat": movement,
    "slice": movement,
    "broadcast_to": movement,
}


class BuiltinLibrary:
    """The kernels of ``ext_kernels.h``: fp32, integers where values only move, rank up to 8."""

    name = "builtin"

    def supports(self, node: Node) -> str | None:
        """None if the built-in kernels can compute the node, else the reason."""
        family = FAMILIES.get(node.op)
        if family is None:
            return f"operator {node.op} has no kernel"
        check_dtypes = getattr(family, "check_dtypes", dtypes.only_float32)
        rank = max([len(node.shape), *(len(operand.shape) for operand in node.operands)])
        if rank > 8:
            return f"rank {rank}; need at most 8"
        return check_dtypes(node) or epilogue.supports(node) or family.supports(node)

    def lower(self, node: RegionNode, builder: PlanBuilder) -> None:
        """Record the calls of one node."""
        FAMILIES[node.node.op].lower(node, builder)


BUILTIN = BuiltinLibrary()
