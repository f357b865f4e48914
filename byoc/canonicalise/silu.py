"""Turn ``x * sigmoid(x)`` into ``silu(x)``."""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, is_kernel_float
from byoc.ir.pattern import call, find, times

SILU = times("x", call("sigmoid", "x", name="gate"))


def silu_from_pieces(block: Block) -> None:
    """Rewrite fp32 products of a tensor and its own sigmoid, if nothing else reads the sigmoid."""
    for var, _ in block.calls("relax.multiply"):
        found = find(block, var, SILU) if is_kernel_float(var) else None
        if found is not None and block.is_private(found["gate"]):
            block.replace(var, relax.op.nn.silu(found["x"]))
