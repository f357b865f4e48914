"""Bring a matrix product beside the arithmetic on its columns that a reshape keeps it from.

    reshape(x [..., K] x W [K, N] + b, [M, N]) * s + t  =  (reshape(x, [M, K]) x W + b) * s + t

PyTorch normalises tokens as rows: Linear, flatten, BatchNorm. The scale and shift can then be
folded into the weight, and ``matmul_over_reshape`` gives the product its leading axes back. Exact.
"""

from __future__ import annotations

from tvm import relax

from byoc.canonicalise.fold_affine import step_of
from byoc.ir.dataflow import Block, Constant, is_kernel_float, shape_of


def matmul_of_rows(block: Block) -> None:
    """Move reshapes to rows before products with one constant matrix, with or without a bias."""
    for var, call in block.calls("relax.reshape"):
        shape, source, readers = shape_of(var), call.args[0], block.users(var)
        if shape is None or len(shape) != 2 or len(readers) != 1 or not is_kernel_float(var):
            continue
        step = step_of(block, readers[0])
        if step is None or step[0] != var or not block.is_private(source):
            continue
        bias, added = None, block.call(source, "relax.add")
        if added is not None:
            bias, source = added.args[1], added.args[0]
            is_row = isinstance(bias, Constant) and shape_of(bias) == (shape[1],)
            if not is_row or not block.is_private(source):
                continue
        product = block.call(source, "relax.matmul")
        if product is None or not isinstance(product.args[1], Constant):
            continue
        lhs, rhs = (shape_of(argument) for argument in product.args)
        if lhs is None or len(lhs) < 3 or rhs is None or len(rhs) != 2 or rhs[1] != shape[1]:
            continue
        rows, _ = var.ty.shape.values
        wide = block.emit(var, relax.op.reshape(product.args[0], [rows, rhs[0]]))
        value = relax.Call(product.op, [wide, product.args[1]], product.attrs, product.ty_args)
        if bias is not None:
            value = relax.op.add(block.emit(var, value), bias)
        block.replace(var, value)
