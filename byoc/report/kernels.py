"""Which kernel libraries compute what, by which algorithm, and how they come into the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from codegen_cc.errors import CodegenError
from codegen_cc.libraries import library, library_for, survey
from codegen_cc.node import Node


@dataclass(frozen=True)
class Kernel:
    """The library that computes a node, and how; both empty where none can.

    ``chosen`` says why: ``measured, 12 % faster`` where a tuning database decided, else nothing.
    ``kept`` says why not in the precision that a user asked for; ``multiplied_in`` is the dtype of
    the products of a contraction. Where the choices of several machines are kept, these are the
    first one's, and ``machines`` has those of all by name.
    """

    library: str = ""
    algorithm: str = ""
    chosen: str = ""
    kept: str = ""
    multiplied_in: str = ""
    machines: tuple[tuple[str, Kernel], ...] = ()

    def __str__(self) -> str:
        reasons = "; ".join(filter(None, (self.chosen, self.kept)))
        why = f" ({reasons})" if reasons else ""
        own = f"{self.library}: {self.algorithm}{why}" if self.library else ""
        others = [
            f"on {machine}: {kernel}"
            for machine, kernel in self.machines
            if (kernel.library, kernel.algorithm) != (self.library, self.algorithm)
        ]
        return "; ".join([own, *others])

    def on(self, machine: str) -> Kernel:
        """What computes the node on a machine, which is this where nothing else was chosen."""
        return dict(self.machines).get(machine, self)


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
    machines = tuple(
        (other.machine, kernel_of(_on(node, other.library, other.algorithm)))
        for other in node.elsewhere
    )
    return Kernel(found.name, algorithm, node.chosen, node.kept, node.multiplied_in, machines)


def _on(node: Node, library: str, algorithm: str) -> Node:
    """The node as it is computed on a machine; what differs from the first's was measured."""
    alike = (library, algorithm) == (node.library, node.algorithm)
    chosen = node.chosen if alike else "measured"
    return replace(node, library=library, algorithm=algorithm, chosen=chosen, elsewhere=())


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


def library_uses(machines: Iterable[Iterable[KernelUse]]) -> tuple[LibraryUse, ...]:
    """The libraries of a model in the order of their work; ``machines`` are the uses of each.

    A library's nodes are those of the machine where it computes the most.
    """
    counts: dict[str, int] = {}
    for uses in machines:
        own: Counter[str] = Counter()
        for use in uses:
            own[use.library] += use.nodes
        counts |= {name: max(count, counts.get(name, 0)) for name, count in own.items()}
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
