"""Plan: the kernel calls of one region, with every value placed in memory."""

from __future__ import annotations

from codegen_cc.builder import Plan, PlanBuilder
from codegen_cc.call import source_comment
from codegen_cc.libraries import library_for
from codegen_cc.region import Region
from codegen_cc.weights import WeightBlob


def plan_region(region: Region, weights: WeightBlob) -> Plan:
    """Lower every node of a region and place its values.

    Raises ``CodegenError`` with the library's reason where no kernel library supports a node.
    """
    builder = PlanBuilder(region, weights)
    for node in region.nodes:
        first = len(builder.plan.calls)
        library = library_for(node.node)
        builder.library, builder.composite = library.name, node.node.composite
        library.lower(node, builder)
        origin = source_comment(node.node.source)
        for call in builder.plan.calls[first:]:
            call.comment += origin
            call.node = node.node
    return builder.finish()
