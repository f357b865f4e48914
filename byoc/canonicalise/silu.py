"""Turn ``x * sigmoid(x)`` into ``silu(x)``."""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, is_kernel_float


def silu_from_pieces(block: Block) -> None:
    """Rewrite fp32 products of a tensor and its own sigmoid, if nothing else reads the sigmoid."""
    for var, call in block.calls("relax.multiply"):
        for source, gate in (call.args, reversed(call.args)):
            sigmoid = block.call(gate, "relax.sigmoid")
            if sigmoid is None or not block.is_private(gate) or not is_kernel_float(var):
                continue
            if sigmoid.args[0] == source:
                block.replace(var, relax.op.nn.silu(source))
                break
