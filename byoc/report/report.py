"""The report of a partition: read from a partitioned module, and shown in several forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import tvm
from rich.console import Console
from tvm import relax

from byoc.errors import CoverageError
from byoc.ir.dataflow import is_candidate, is_region, shape_in
from byoc.ir.walk import bindings_of, composites_of
from byoc.report.coverage import Coverage, RegionSummary
from byoc.report.graph import dot_text, graph_of
from byoc.report.html import html_page
from byoc.report.left import left_of
from byoc.report.render import blockers, coverage_line, render
from byoc.terminal import new_console
from codegen_cc import dtypes
from codegen_cc.dim import at_unit, product
from codegen_cc.node import CONSTANTS_ATTRIBUTE, Node
from codegen_cc.plan.plan_cost import PlanCost, cost_of


@dataclass(frozen=True)
class Report(Coverage):
    """Coverage of one partition, and the forms in which people and programs get it."""

    @classmethod
    def of(cls, mod: tvm.IRModule, reasons: Mapping[relax.Var, str] | None = None) -> Report:
        """Read a partitioned module; ``reasons`` are those that the partitioner collected."""
        functions = dict(mod.functions.items())
        regions = [
            _summarise(str(func.attrs["global_symbol"]), func)
            for func in functions.values()
            if is_region(func)
        ]
        left = [
            entry
            for func in functions.values()
            if is_candidate(func)
            for entry in left_of(func, reasons or {})
        ]
        ordered = sorted(regions, key=lambda region: _natural(region.name))
        return cls(tuple(ordered), tuple(left), graph_of(mod, reasons or {}))

    def with_plan_costs(self, costs: Mapping[str, PlanCost]) -> Report:
        """The report with what the plan of each region costs, by the regions' names."""
        regions = tuple(replace(r, plan=costs.get(r.name, r.plan)) for r in self.regions)
        return replace(self, regions=regions)

    def planned(self, mod: tvm.IRModule) -> Report:
        """The report with what the regions' plans cost; ``mod`` is the module that it is of.

        Planning packs the weights, which takes a second per 100 MB or so, and drops them.
        """
        from codegen_cc import plan_functions

        regions = [f for f in mod.functions.values() if is_region(f)]
        plans = plan_functions(regions)
        return self.with_plan_costs({plan.region.symbol: cost_of(plan) for plan in plans})

    def summary(self) -> str:
        """One line: operators, multiply-accumulates and regions."""
        return coverage_line(self)

    def to_dot(self) -> str:
        """The network as a Graphviz file: regions are clusters, what stays with TVM is dashed."""
        return "\n".join(dot_text(self.graph)) + "\n"

    def to_html(self, title: str = "partition") -> str:
        """One page that needs no other file: the network as a drawing, tables and reasons."""
        return html_page(self, title)

    def require(self, min_coverage: float | None = None, full: bool = False) -> None:
        """Raise ``CoverageError``, which lists what is in the way, if too little is offloaded.

        ``min_coverage`` is the least share of multiply-accumulates, from 0 to 1; ``full`` demands
        that no operator stays with TVM.
        """
        if full and self.left:
            raise CoverageError(
                f"{len(self.left)} of {self.operators} operators stay with TVM; need none"
                + blockers(self.left)
            )
        if min_coverage is not None and self.offloaded_macs < min_coverage * self.macs:
            share = 100 * self.offloaded_macs / self.macs
            raise CoverageError(
                f"{share:.2f} % of MACs are offloaded; need {100 * min_coverage:g} %"
                + blockers([entry for entry in self.left if entry.macs])
            )

    def render(self, console: Console | None = None) -> None:
        """Print the coverage line, tables of regions and of what is left, and a hint if any."""
        render(self, console or new_console())


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """Sorts numbers in names as numbers: region 2 comes before region 10."""
    parts = re.split(r"(\d+)", name)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def _summarise(name: str, region: relax.Function) -> RegionSummary:
    nodes: list[Node] = []
    operators = 0
    for _, composite, node in composites_of(region):
        nodes.append(node)
        bindings = bindings_of(composite)
        operators += sum(isinstance(binding.value, relax.Call) for binding in bindings)
    weights = region.attrs.get(CONSTANTS_ATTRIBUTE, ())
    return RegionSummary(
        name,
        operators,
        sum(at_unit(node.macs) for node in nodes),
        sum(_bytes(param.ty) for param in region.params),
        # Not the result's own type: rebuilding the function may have lost its symbols.
        _bytes(region.ret_ty),
        sum(prod(weight.shape) * dtypes.of(str(weight.dtype)).bytes for weight in weights),
        elements=sum(at_unit(product(r.shape)) for node in nodes for r in node.results),
    )


def _bytes(kind: relax.Type) -> int:
    """Bytes of a tensor or of all tensors of a tuple, every symbol 1; 0 for unknown shapes."""
    types = kind.fields if isinstance(kind, relax.TupleType) else [kind]
    total = 0
    for ty in types:
        shape = shape_in(ty)
        if shape is not None:
            total += at_unit(product(shape)) * dtypes.of(str(ty.dtype)).bytes
    return total
