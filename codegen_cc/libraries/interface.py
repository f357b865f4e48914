"""The interface of a kernel library, as partitioner, planner and tool chain see it.

A library is any object of the protocol ``KernelLibrary``. ``builtin``, the adapters and a user's
own are written against it alike; ``codegen_cc.libraries.table`` offers a declarative form of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from codegen_cc.node import Node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.region.graph import RegionNode

#: Version of this interface. A library states the one that it was written for.
LIBRARY_ABI = 1


@dataclass(frozen=True)
class Link:
    """What generated code needs from a library: to compile, to link, and when it runs.

    ``headers`` are included by generated code (``my_library.h``; found in ``include_dirs``).
    ``sources`` are C files that are compiled with ``cflags`` beside the generated code.
    ``archives``, ``.a`` or ``.o`` files, are linked in; all symbols but those of packed functions
    (``__tvm_ffi_*``) become local.
    ``shared`` libraries are not linked but opened when a region that uses them runs first: a file
    of that name beside the model, in a folder of ``$BYOC_LIBRARY_PATH``, at this path, or where the
    system looks.  A missing file or function is an error of that call, not of loading the model.
    """

    headers: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    sources: tuple[Path, ...] = ()
    archives: tuple[Path, ...] = ()
    shared: tuple[Path, ...] = ()
    cflags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Threads:
    """How a library with threads of its own is told their number.

    ``set`` is a C function ``void f(int)``, called at each run of a region that uses the library
    with the size of TVM's thread pool; ``get`` is ``int f(void)``, the number that it will use.
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
        """Record the calls that compute a node that ``supports`` accepted, and place its result."""

    def link(self) -> Link:
        """Headers, sources and files that the recorded calls need."""

    def algorithm(self, node: Node) -> str:
        """How it computes a supported node, for reports, such as ``implicit GEMM``."""

    def cost(self, node: Node) -> float | None:
        """Seconds that a supported node takes on one core, or None where it does not know."""
