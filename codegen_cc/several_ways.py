"""Regions whose nodes are computed in other ways on other machines, planned once for each way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm import relax

from codegen_cc.emit.machines import Ways, way_symbol
from codegen_cc.errors import CodegenError
from codegen_cc.link.weights import WeightBlob
from codegen_cc.lowering import plan_region
from codegen_cc.node import Node
from codegen_cc.plan.builder import Plan
from codegen_cc.region.read_relax import read_region

#: Library and algorithm of each node of a region.
_Way = tuple[tuple[str, str], ...]


def several_ways(
    functions: Sequence[relax.Function], plans: Sequence[Plan], weights: WeightBlob
) -> list[Ways]:
    """The regions that machines compute in several ways; ``plans`` are those of the first machine.

    Machines that compute a region alike share a plan.
    """
    found = []
    for function, plan in zip(functions, plans, strict=True):
        nodes = [node.node for node in plan.region.nodes]
        machines = _machines(nodes)
        ways: dict[_Way, int] = {}
        taken = [(name, ways.setdefault(_way(nodes, name), len(ways))) for name in machines]
        if len(ways) < 2:
            continue
        further = []
        for way, index in list(ways.items())[1:]:
            region = read_region(function)
            region.symbol = way_symbol(region.symbol, index)
            for node, (library, algorithm) in zip(region.nodes, way, strict=True):
                node.node = replace(node.node, library=library, algorithm=algorithm)
            further.append(plan_region(region, weights))
        found.append(Ways((plan, *further), tuple(taken)))
    return found


def require_one_way(function: relax.Function, what: str) -> None:
    """Raise ``CodegenError`` for a region with the choices of several machines."""
    names = _machines([node.node for node in read_region(function).nodes])
    if names:
        raise CodegenError(
            f"{what} has the choices of one machine, and these are those of {'; '.join(names)}; "
            "name one with --tuning-machine"
        )


def _machines(nodes: Sequence[Node]) -> list[str]:
    return list(dict.fromkeys(other.machine for node in nodes for other in node.elsewhere))


def _way(nodes: Sequence[Node], machine: str) -> _Way:
    """How a machine computes each node; one that says nothing of it is computed alike on all."""
    found = []
    for node in nodes:
        own = next((other for other in node.elsewhere if other.machine == machine), node)
        found.append((own.library, own.algorithm))
    return tuple(found)
