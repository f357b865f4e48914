"""A node's operands in memory and its parameter block: what lowering a node amounts to.

The ``place_*`` functions beside the built-in kernels give it for the operators that have a block in
``ext_kernels.h``; any library may call them, and pass the block to a kernel of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Argument, Struct
from codegen_cc.plan.tensors import Tensor
from codegen_cc.region.graph import RegionNode


@dataclass(frozen=True)
class Placement:
    """Everything that a call of the node's kernel needs, the format of its weights aside.

    ``params`` is the operator's block; ``inputs`` are the tensors that the kernel reads, by role;
    ``epilogue`` is the ``ext_epilogue``, or None; ``output`` is where the result goes.
    """

    params: Struct
    inputs: dict[str, Tensor]
    epilogue: Struct | None
    output: Tensor
    comment: str

    def call(
        self, node: RegionNode, builder: PlanBuilder, function: str, arguments: list[Argument]
    ) -> None:
        """Record the call of ``function``, and that the node's result is in ``output``."""
        builder.call(function, arguments, self.output, self.comment)
        builder.place(node.output, self.output)
