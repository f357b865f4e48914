"""The interface of a kernel library, as planner and partitioner see it."""

from __future__ import annotations

from typing import Protocol

from codegen_cc.builder import PlanBuilder
from codegen_cc.node import Node
from codegen_cc.region import RegionNode


class KernelLibrary(Protocol):
    """A set of kernels that can compute some nodes."""

    name: str

    def supports(self, node: Node) -> str | None:
        """None if this library can compute the node, else the reason with values in it."""

    def lower(self, node: RegionNode, builder: PlanBuilder) -> None:
        """Record the calls that compute a node that ``supports`` accepted, and place its result."""
