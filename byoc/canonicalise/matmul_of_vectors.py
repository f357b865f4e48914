"""Write matrix products with a vector on either side as products of matrices.

[K] x [..., K, N]: the vector is one row;      [..., M, K] x [K]: the vector is one column
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, shape_of


def matmul_of_vectors(block: Block) -> None:
    """Rewrite products of known shape of which an operand has rank 1."""
    for var, call in block.calls("relax.matmul"):
        shapes = [shape_of(argument) for argument in call.args]
        if None in shapes or shape_of(var) is None or all(len(s) > 1 for s in shapes):
            continue
        lhs, rhs = call.args
        if len(shapes[0]) == 1:
            lhs = block.emit(var, relax.op.reshape(lhs, [1, *lhs.ty.shape.values]))
        if len(shapes[1]) == 1:
            rhs = block.emit(var, relax.op.reshape(rhs, [*rhs.ty.shape.values, 1]))
        product = block.emit(var, relax.Call(call.op, [lhs, rhs], call.attrs, call.ty_args))
        block.replace(var, relax.op.reshape(product, var.ty.shape))
