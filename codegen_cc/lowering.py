"""Plan: the kernel calls of one region, with every value placed in memory."""

from __future__ import annotations

from codegen_cc.errors import CodegenError, foreign_errors_as
from codegen_cc.libraries import library_for
from codegen_cc.libraries.measured_choice import algorithms_of
from codegen_cc.link.weights import WeightBlob
from codegen_cc.plan.borders import find_borders
from codegen_cc.plan.builder import RUNTIME, Plan, PlanBuilder
from codegen_cc.plan.call import source_comment
from codegen_cc.plan.products import find_products
from codegen_cc.plan.prologue import find_prologues
from codegen_cc.region.graph import Region, RegionNode


def plan_region(region: Region, weights: WeightBlob) -> Plan:
    """Lower every node of a region and place its values.

    Raises ``CodegenError`` with the library's reason where no kernel library supports a node, and
    where a node names an algorithm that its library does not offer.
    """
    builder = PlanBuilder(region, weights)
    private = region.private_producers()
    builder.prologues = find_prologues(region, private, _is_runtimes)
    builder.borders = find_borders(region, private, _is_runtimes)
    done_by_readers = [*builder.prologues.values(), *builder.borders.values()]
    absorbed = {node for found in done_by_readers for node in found.nodes}
    builder.products = find_products(region, private, builder.stored_dtype, _is_runtimes, absorbed)
    absorbed.update(builder.products.values())
    for node in region.nodes:
        if node in absorbed:
            continue
        first = len(builder.plan.calls)
        library = library_for(node.node)
        wanted = node.node.algorithm
        if wanted and wanted not in (known := algorithms_of(library, node.node)):
            raise CodegenError(
                f"library {library.name} has no algorithm {wanted!r} for {node.node.composite};"
                f" it has {', '.join(known)}"
            )
        builder.library, builder.composite = library.name, node.node.composite
        origin = source_comment(node.node.source)
        with foreign_errors_as(
            CodegenError, f"region {region.symbol}: code for {node.node.composite}{origin}"
        ):
            library.lower(node, builder)
        for call in builder.plan.calls[first:]:
            call.comment += origin
            call.node = node.node
    return builder.finish()


def _is_runtimes(node: RegionNode) -> bool:
    """Whether the runtime's own kernels compute a node."""
    return library_for(node.node).name == RUNTIME
