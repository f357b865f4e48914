"""Which kernel libraries compute what, by which algorithm, and how they come into the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from codegen_cc.errors import CodegenError
from codegen_cc.libraries import library, library_for, survey
from codegen_cc.node import Node


@dataclass(frozen=True)
class Kernel:
    """The library that computes a node, and how; both empty where none can.

    ``chosen`` says why: ``measured, 12 % faster`` where a tuning database decided, else nothing.
    ``kept`` says why not in the precision that a user asked for; ``multiplied_in`` is the dtype of
    the products of a contraction.
    """

    library: str = ""
    algorithm: str = ""
    chosen: str = ""
    kept: str = ""
    multiplied_in: str = ""

    def __str__(self) -> str:
        reasons = "; ".join(filter(None, (self.chosen, self.kept)))
        why = f" ({reasons})" if reasons else ""
        return f"{self.library}: {self.algorithm}{why}" if self.library else ""


@dataclass(frozen=True)
class KernelUse:
    """Nodes that one library computes by one algorithm: how many, and their work.

    For ``measured`` nodes of them a tuning database decided.
    """

    library: str
    algorithm: str
    nodes: int
    macs: int
    measured: int = 0


@dataclass(frozen=True)
class LibraryUse:
    """A library of the model: version, nodes, and how it is linked, for people."""

    name: str
    version: str
    nodes: int
    linked: str


def kernel_of(node: Node) -> Kernel:
    """Library and algorithm of a node."""
    try:
        found = library_for(node)
    except CodegenError:
        return Kernel()
    algorithm = node.algorithm or found.algorithm(node)
    return Kernel(found.name, algorithm, node.chosen, node.kept, node.multiplied_in)


def kernel_uses(kernels: Iterable[tuple[Kernel, int]]) -> tuple[KernelUse, ...]:
    """Group nodes, given with their MACs, by library and algorithm; the most work first."""
    groups: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for kernel, macs in kernels:
        if kernel.library:
            key = (kernel.library, kernel.algorithm)
            groups.setdefault(key, []).append((macs, bool(kernel.chosen)))
    uses = [
        KernelUse(*key, len(nodes), *map(sum, zip(*nodes, strict=True)))
        for key, nodes in groups.items()
    ]
    return tuple(sorted(uses, key=lambda use: (-use.macs, -use.nodes, use.library, use.algorithm)))


def library_uses(uses: Iterable[KernelUse]) -> tuple[LibraryUse, ...]:
    """The libraries of a model in the order of their work."""
    counts: dict[str, int] = {}
    for use in uses:
        counts[use.library] = counts.get(use.library, 0) + use.nodes
    return tuple(
        LibraryUse(name, library(name).version, nodes, linkage(name))
        for name, nodes in counts.items()
    )


def linkage(name: str) -> str:
    """How a library comes into the model, such as ``static`` or ``opens libdnnl.so.3 ...``."""
    try:
        return survey.linkage(library(name))
    except CodegenError as error:
        return str(error)
