"""The numbers of one partition: what all forms of a report are made of.

Operators are Relax calls after canonicalisation: one for each call inside a composite, one for
each call that stays with TVM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from byoc.report.asked import Asked
from byoc.report.graph import OFFLOADED, Graph, GraphNode
from byoc.report.kernels import KernelUse, LibraryUse, kernel_uses, library_uses
from byoc.report.left import Left
from byoc.report.shortfall import Shortfall, shortfall_of
from codegen_cc.plan.plan_cost import PlanCost


@dataclass(frozen=True)
class RegionSummary:
    """One region: operators in it, multiply-accumulates, bytes of its inputs, outputs, weights."""

    name: str
    operators: int
    macs: int
    bytes_in: int
    bytes_out: int
    weight_bytes: int
    #: What its plan costs, once it has been planned.
    plan: PlanCost | None = None
    #: Elements of the results of its nodes.
    elements: int = 0


@dataclass(frozen=True)
class Pruned:
    """A region that went back to TVM: its operators, and bytes that its computing nodes move."""

    operators: int
    bytes: int


@dataclass(frozen=True)
class Coverage:
    """What one partition took, what it left, and why, as values alone."""

    regions: tuple[RegionSummary, ...]
    left: tuple[Left, ...]
    #: The network as a drawing, for ``to_dot`` and ``to_html``.
    graph: Graph = field(default_factory=Graph, repr=False, compare=False)
    #: Regions that were too small to be worth a call.
    pruned: tuple[Pruned, ...] = ()
    #: Whether special values flow as through the operators' formulas (see ``partition_for_ext``).
    exact: bool = False
    #: The kernel libraries that were asked for.
    asked: tuple[Asked, ...] = ()
    #: What dynamic axes got that nobody gave a size, in one line.
    axes: str = ""

    @property
    def offloaded(self) -> int:
        """Operators in regions."""
        return sum(region.operators for region in self.regions)

    @property
    def operators(self) -> int:
        """Operators in all."""
        return self.offloaded + len(self.left)

    @property
    def offloaded_macs(self) -> int:
        """Multiply-accumulates in regions."""
        return sum(region.macs for region in self.regions)

    @property
    def macs(self) -> int:
        """Multiply-accumulates in all: convolutions (transposed too) and matrix products."""
        return self.offloaded_macs + sum(left.macs for left in self.left)

    @property
    def shortfall(self) -> Shortfall | None:
        """What is missing where less than half of the work is offloaded, else None."""
        elements = sum(region.elements for region in self.regions)
        return shortfall_of(self.offloaded_macs, elements, self.left)

    @property
    def next_threshold(self) -> Pruned | None:
        """The next lower ``min_bytes`` of partitioning, and the operators that it would add.

        None where no region that computes was too small.
        """
        least = max((region.bytes for region in self.pruned), default=0)
        added = [region.operators for region in self.pruned if region.bytes == least]
        return Pruned(sum(added), least) if least > 0 else None

    @property
    def kernels(self) -> tuple[KernelUse, ...]:
        """Which library computes how many nodes by which algorithm, the most work first."""
        return kernel_uses((node.kernel, node.macs) for node in self._boxes)

    @property
    def machines(self) -> Mapping[str, tuple[KernelUse, ...]]:
        """``kernels`` for each machine, by name, where the choices of several are kept.

        ``kernels`` are then those of the first.
        """
        names = dict.fromkeys(name for node in self._boxes for name, _ in node.kernel.machines)
        return {
            name: kernel_uses((node.kernel.on(name), node.macs) for node in self._boxes)
            for name in names
        }

    @property
    def _boxes(self) -> list[GraphNode]:
        return [node for node in self.graph.nodes if node.kind == OFFLOADED]

    @property
    def multiplied_in(self) -> Mapping[str, int]:
        """Multiply-accumulates of regions by the dtype of their products, the most first."""
        found: Counter[str] = Counter()
        for node in self._boxes:
            if node.kernel.multiplied_in:
                found[node.kernel.multiplied_in] += node.macs
        return dict(found.most_common())

    @property
    def kept(self) -> Mapping[str, int]:
        """Why nodes are not in the precision that was asked for: how many for each reason."""
        reasons = (node.kernel.kept for node in self._boxes)
        return dict(Counter(filter(None, reasons)).most_common())

    @property
    def libraries(self) -> tuple[LibraryUse, ...]:
        """The kernel libraries of the model, and how each is linked."""
        return library_uses([self.kernels, *self.machines.values()])

    @property
    def idle(self) -> tuple[Asked, ...]:
        """Those that took no node, where a user asked for more than the built-in library."""
        others = [asked for asked in self.asked if asked.library != "builtin"]
        return tuple(asked for asked in self.asked if not asked.nodes) if others else ()

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts, for ``json.dumps``."""
        return {
            "operators": self.operators,
            "offloaded": self.offloaded,
            "macs": self.macs,
            "offloaded_macs": self.offloaded_macs,
            "exact": self.exact,
            "axes": self.axes,
            "shortfall": None if self.shortfall is None else asdict(self.shortfall),
            "regions": [asdict(region) for region in self.regions],
            "left": [
                {"name": e.name, "op": e.op, "shapes": e.shapes, "reason": e.reason}
                for e in self.left
            ],
            "libraries": [asdict(use) for use in self.libraries],
            "asked_libraries": [{**asdict(a), "why": list(a.why)} for a in self.asked],
            "multiplied_in": self.multiplied_in,
            "kernels": [asdict(use) for use in self.kernels],
            "machines": {
                name: [asdict(use) for use in uses] for name, uses in self.machines.items()
            },
            "nodes": [
                {
                    "name": node.name,
                    "composite": node.operator,
                    "region": node.region,
                    "library": node.kernel.library,
                    "algorithm": node.kernel.algorithm,
                    "chosen_by": node.kernel.chosen,
                    "multiplied_in": node.kernel.multiplied_in,
                    "kept": node.kernel.kept,
                }
                for node in self._boxes
            ],
        }
