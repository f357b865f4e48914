"""The interface of a kernel library, as partitioner, planner and tool chain see it.

A library is any object of the protocol ``KernelLibrary``. ``builtin``, the adapters and a user's
own are written against it alike; ``codegen_cc.libraries.table`` offers a declarative form of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from codegen_cc.link.needs import Link
from codegen_cc.node import Node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.region.graph import RegionNode

#: Version of this interface. A library states the one that it was written for.
LIBRARY_ABI = 1


@dataclass(frozen=True)
class Threads:
    """How a library with threads of its own is told their number.

    ``set`` is a C function ``void f(int)``, called at each run of a region that uses the library
    with the number of threads that kernels use; ``get`` is ``int f(void)``, what it will use.
    """

    set: str
    get: str | None = None


@runtime_checkable
class KernelLibrary(Protocol):
    """A set of kernels that can compute some nodes.

    A library with several ways to compute a node may have one method more, ``algorithms(node) ->
    Sequence[str]``: their names, its own choice first.  ``lower`` and ``algorithm`` then obey
    ``node.algorithm`` where it is not empty; measured choice (docs/tuning.md) sets it.

    ``threads`` is None where kernels are serial or use ``ext_parallel_for``. ``status_text`` names
    a C function ``const char* f(int)`` for statuses other than those of ``ext_status``, or is None.
    """

    name: str
    version: str
    abi: int
    threads: Threads | None
    status_text: str | None

    def supports(self, node: Node) -> str | None:
        """None if this library can compute the node, else the reason with values in it."""

    def lower(self, node: RegionNode, builder: PlanBuilder) -> None:
        """Record the calls that compute a node that ``supports`` accepted; place its results."""

    def link(self) -> Link:
        """Headers, sources and files that the recorded calls need."""

    def algorithm(self, node: Node) -> str:
        """How it computes a supported node, for reports, such as ``implicit GEMM``."""

    def cost(self, node: Node) -> float | None:
        """Seconds that a supported node takes on one core, or None where it does not know."""
