"""``onednn``: Intel's oneDNN (version 3), for example from PyPI's ``onednn-devel-cpu-gomp``.

The adapter ``runtime/adapters/ext_onednn*.c`` is compiled into the model; ``libdnnl.so.3`` is
opened when a region that uses it runs first. Weights are stored plain, and copied into the format
that oneDNN chooses for the CPU at the first call.

Its own environment variables hold: ``ONEDNN_VERBOSE=1`` prints what runs, ``ONEDNN_MAX_CPU_ISA``
limits the instructions, and ``OMP_WAIT_POLICY=passive`` keeps its idle threads from taking cores
that others need, TVM's pool among them.

``LIBRARY`` is made when it is asked for, and that raises ``LibraryError`` where oneDNN is missing.
"""

from __future__ import annotations

from functools import cache

from codegen_cc.libraries.interface import LIBRARY_ABI, Link, Threads
from codegen_cc.libraries.onednn import lowering, rules
from codegen_cc.libraries.onednn.installation import Installation, find_installation
from codegen_cc.node import Node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.region.graph import RegionNode
from codegen_cc.runtime_files import runtime_file

SOURCES = ("ext_onednn.c", "ext_onednn_contraction.c", "ext_onednn_rows.c")


class OneDnnLibrary:
    """fp32 convolution, matmul, pooling, softmax, LayerNorm and elementwise functions of oneDNN.

    NaN are not sure to survive its ReLU, clip, maximum and softmax. It has threads of its own
    (OpenMP), as many as TVM's pool.
    """

    name = "onednn"
    abi = LIBRARY_ABI
    threads: Threads | None = Threads("ext_onednn_set_threads", "ext_onednn_get_threads")
    status_text: str | None = "ext_onednn_status_text"

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.version = installation.version

    def supports(self, node: Node) -> str | None:
        """None if oneDNN can compute the node as the built-in kernels do, else the reason."""
        return rules.supports(node)

    def lower(self, node: RegionNode, builder: PlanBuilder) -> None:
        """Record one call, with a state that keeps its primitives and packed weights."""
        lowering.lower(node, builder)

    def link(self) -> Link:
        """The adapter's C files, oneDNN's headers and its shared library."""
        adapters = runtime_file("adapters/ext_onednn.h").parent
        return Link(
            headers=("ext_onednn.h",),
            include_dirs=(adapters, self.installation.include),
            sources=tuple(runtime_file(f"adapters/{name}") for name in SOURCES),
            shared=(self.installation.library,),
        )

    def algorithm(self, node: Node) -> str:
        """The oneDNN primitive; which implementation of it runs, the CPU decides."""
        return rules.algorithm(node)

    def cost(self, node: Node) -> float | None:
        """Not known without measuring."""
        del node
        return None


@cache
def _library() -> OneDnnLibrary:
    return OneDnnLibrary(find_installation())


def __getattr__(name: str) -> OneDnnLibrary:
    """``LIBRARY``, so that the rules can be read where oneDNN is not installed."""
    if name == "LIBRARY":
        return _library()
    raise AttributeError(f"module {__name__} has no attribute {name}")
