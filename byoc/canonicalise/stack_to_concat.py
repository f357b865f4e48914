"""Turn ``stack`` into ``concat`` of operands with a new axis of extent 1."""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, shape_of


def stack_to_concat(block: Block) -> None:
    """Rewrite stacks of tensors of known shape that are written in the call."""
    for var, call in block.calls("relax.stack"):
        result = shape_of(var)
        if result is None or not isinstance(call.args[0], relax.Tuple):
            continue
        axis = int(call.attrs.axis or 0) % len(result)
        extents = list(var.ty.shape.values)
        one = [*extents[:axis], 1, *extents[axis + 1 :]]
        parts = [block.emit(var, relax.op.reshape(x, one)) for x in call.args[0].fields]
        block.replace(var, relax.op.concat(parts, axis))
