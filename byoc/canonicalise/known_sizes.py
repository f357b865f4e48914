"""Write extents as numbers where they are read, not as those of a shape that is computed.

shape_to_tensor(shape_of(x))        = shape_to_tensor([n, m])       for x of the shape [n, m]
take(shape_to_tensor([n, m]), 1)    = shape_to_tensor([m]), without its axis
size(x)                             = shape_to_tensor([n m]), without its axis
"""

from __future__ import annotations

from functools import reduce
from operator import mul

from tvm import relax, tirx

from byoc.ir.dataflow import Block, array_of, shape_of


def known_sizes(block: Block) -> None:
    """Rewrite extents of known shapes."""
    for var, call in block.calls("relax.shape_to_tensor"):
        asked = block.call(call.args[0], "relax.shape_of")
        if asked is not None and shape_of(asked.args[0]) is not None:
            block.replace(var, relax.op.shape_to_tensor(asked.args[0].ty.shape))
    for var, call in block.calls("relax.size"):
        if shape_of(call.args[0]) is not None:
            count = reduce(mul, call.args[0].ty.shape.values, tirx.IntImm("int64", 1))
            number = relax.op.shape_to_tensor(relax.ShapeExpr([count]))
            block.replace(var, relax.op.reshape(block.emit(var, number), []))
    for var, call in block.calls("relax.take"):
        source, index = block.call(call.args[0], "relax.shape_to_tensor"), array_of(call.args[1])
        if source is None or not isinstance(source.args[0], relax.ShapeExpr):
            continue
        values = list(source.args[0].values)
        if index is None or index.size != 1 or not -len(values) <= int(index.item()) < len(values):
            continue
        number = relax.op.shape_to_tensor(relax.ShapeExpr([values[int(index.item())]]))
        block.replace(var, relax.op.reshape(block.emit(var, number), list(index.shape)))
