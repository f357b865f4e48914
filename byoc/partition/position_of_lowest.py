"""Give ``argmax`` of a row of nothing but lowest numbers, as TVM computes it, its first position.

    argmax(x) -> maximum(argmax(x), 0)      argmin alike

TVM's loops begin with position -1 and the lowest number of the dtype, or the greatest one for
``argmin``, and move on where an element is beyond: -1 is left of a row of zeros of uint8, or of
-infinities. ONNX, NumPy and our kernel give 0.
"""

from __future__ import annotations

import tvm
from tvm import relax

from byoc.ir.dataflow import Block, dtype_of, map_blocks


def position_of_lowest(mod: tvm.IRModule) -> tvm.IRModule:
    """Rewrite the calls that are left to TVM, those in branches too."""

    def rewrite(block: relax.DataflowBlock) -> relax.DataflowBlock:
        open_block = Block(block, mod)
        for var, call in open_block.calls("relax.argmax", "relax.argmin"):
            found = open_block.emit(var, call)
            open_block.replace(var, relax.op.maximum(found, relax.const(0, dtype_of(var))))
        return open_block.finish()

    return map_blocks(mod, rewrite, nested=True)
