"""``builtin``: the embedded kernels of ``runtime/``, without any dependency.

One module per kernel family holds, side by side, the rule for taking a node (``supports``) and the
calls that compute it (``lower``).
"""

from __future__ import annotations

from codegen_cc.c_header import kernel_header
from codegen_cc.libraries.builtin import (
    arange,
    attention,
    conv2d,
    conv2d_transpose,
    conv3d,
    dtype_rules,
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
from codegen_cc.libraries.interface import LIBRARY_ABI, Link, Threads
from codegen_cc.node import Node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.region.graph import RegionNode
from codegen_cc.runtime_files import runtime_file

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
    "arange": arange,
    "pad": pad,
    "resize2d": resize2d,
    "reshape": movement,
    "permute": movement,
    "concat": movement,
    "slice": movement,
    "broadcast_to": movement,
}


class BuiltinLibrary:
    """The kernels of ``ext_kernels.h``: fp32, integers where values only move."""

    name = "builtin"
    abi = LIBRARY_ABI
    threads: Threads | None = None  # kernels use ext_parallel_for, which is TVM's pool
    status_text: str | None = None

    @property
    def version(self) -> str:
        """That of the C interface. Raises ``ToolchainError`` where the kernels are missing."""
        return str(kernel_header().constants["EXT_ABI_VERSION"])

    def supports(self, node: Node) -> str | None:
        """None if the built-in kernels can compute the node, else the reason."""
        family = FAMILIES.get(node.op)
        if family is None:
            return f"operator {node.op}; need one of {', '.join(FAMILIES)}"
        check_dtypes = getattr(family, "check_dtypes", dtype_rules.only_float32)
        reason = dtype_rules.as_stored(node) or check_dtypes(node)
        return reason or epilogue.supports(node) or family.supports(node)

    def lower(self, node: RegionNode, builder: PlanBuilder) -> None:
        """Record the calls of one node."""
        FAMILIES[node.node.op].lower(node, builder)

    def link(self) -> Link:
        """The kernel archive. Raises ``ToolchainError`` where it has not been built."""
        header = runtime_file("include/ext_kernels.h")
        archive = runtime_file("lib/libext_kernels.a")
        return Link((header.name,), (header.parent,), archives=(archive,))

    def algorithm(self, node: Node) -> str:
        """The kernel family, or what the family calls its way of computing the node."""
        name = getattr(FAMILIES[node.op], "algorithm", None)
        return name(node) if name is not None else node.op

    def algorithms(self, node: Node) -> tuple[str, ...]:
        """Every way to compute the node that ``Node.algorithm`` may name, its own choice first."""
        names = getattr(FAMILIES[node.op], "algorithms", None)
        return names(node) if names is not None else (self.algorithm(node),)

    def cost(self, node: Node) -> float | None:
        """Not known without measuring."""
        del node
        return None


LIBRARY = BuiltinLibrary()
