"""The built-in convolution by one algorithm each, for layers where its cost model chooses."""

from __future__ import annotations

from codegen_cc.libraries.builtin import BuiltinLibrary
from codegen_cc.node import Node
from codegen_cc.operators import conv2d, conv2d_ways
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.region.graph import RegionNode


class OneAlgorithm(BuiltinLibrary):
    """``builtin`` for 3x3 convolutions of stride 1 alone, always with this tile of Winograd's.

    ``tile`` 0 is implicit GEMM.
    """

    def __init__(self, name: str, tile: int) -> None:
        self.name, self.tile = name, tile

    def supports(self, node: Node) -> str | None:
        """None where there is a choice of algorithms."""
        reason = super().supports(node)
        if reason is None and not (node.op == "conv2d" and conv2d_ways.fits_winograd(node)):
            reason = f"{node.op} that has one algorithm; need a 3x3 convolution of stride 1"
        return reason

    def lower(self, node: RegionNode, builder: PlanBuilder) -> None:
        """The kernel of this algorithm."""
        conv2d.lower_with(node, builder, self._way(node.node))

    def algorithm(self, node: Node) -> str:
        """As ``builtin`` calls it."""
        return conv2d_ways.algorithm_of(node, self._way(node))

    def _way(self, node: Node) -> conv2d_ways.Way:
        return (
            conv2d_ways.Way(self.tile)
            if self.tile
            else conv2d_ways.Way(0, conv2d_ways.own_rows(node))
        )


#: By name on the command line.
ALGORITHMS = {
    library.name: library
    for library in (
        OneAlgorithm("builtin_gemm", 0),
        OneAlgorithm("builtin_f2", 4),
        OneAlgorithm("builtin_f4", 6),
        OneAlgorithm("builtin_f6", 8),
    )
}
