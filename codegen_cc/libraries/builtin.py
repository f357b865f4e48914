"""``builtin``: the embedded kernels of ``runtime/``, without any dependency.

The record of an operator (``codegen_cc/operators``) holds the rule for taking a node and the calls
that compute it.
"""

from __future__ import annotations

import re

from codegen_cc.libraries.interface import LIBRARY_ABI, Link, Threads
from codegen_cc.node import Node
from codegen_cc.operator import is_operator, operator_of
from codegen_cc.operators import dtype_rules, epilogue
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.region.graph import RegionNode
from codegen_cc.runtime_files import runtime_file


class BuiltinLibrary:
    """The kernels of ``ext_kernels.h``: fp32, integers where values only move."""

    name = "builtin"
    abi = LIBRARY_ABI
    threads: Threads | None = None  # kernels use ext_parallel_for, which asks TVM how many
    status_text: str | None = None

    @property
    def version(self) -> str:
        """That of the C interface. Raises ``ToolchainError`` where the kernels are missing."""
        header = runtime_file("include/ext_common.h").read_text(encoding="utf-8")
        return re.search(r"#define EXT_ABI_VERSION (\d+)", header)[1]

    def supports(self, node: Node) -> str | None:
        """None if the built-in kernels can compute the node, else the reason."""
        kernels = operator_of(node.op).kernels if is_operator(node.op) else None
        if kernels is None:
            return f"operator {node.op}; need one that docs/libraries.md lists"
        computes = kernels.computes if node.compute and kernels.computes else dtype_rules.as_stored
        reason = computes(node) or kernels.dtypes(node)
        return reason or epilogue.supports(node) or kernels.supports(node)

    def lower(self, node: RegionNode, builder: PlanBuilder) -> None:
        """Record the calls of one node."""
        operator_of(node.node.op).kernels.lower(node, builder)

    def link(self) -> Link:
        """The kernel archive. Raises ``ToolchainError`` where it has not been built."""
        header = runtime_file("include/ext_kernels.h")
        archive = runtime_file("lib/libext_kernels.a")
        return Link((header.name,), (header.parent,), archives=(archive,))

    def algorithm(self, node: Node) -> str:
        """What the operator's record calls its way of computing the node."""
        name = operator_of(node.op).kernels.algorithm
        return name(node) if name is not None else node.op

    def algorithms(self, node: Node) -> tuple[str, ...]:
        """Every way to compute the node that ``Node.algorithm`` may name, its own choice first."""
        names = operator_of(node.op).kernels.algorithms
        return names(node) if names is not None else (self.algorithm(node),)

    def cost(self, node: Node) -> float | None:
        """Not known without measuring."""
        del node
        return None


LIBRARY = BuiltinLibrary()
