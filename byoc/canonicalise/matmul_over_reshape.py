"""Let a matrix product have the leading axes that a reshape gives its result afterwards.

    reshape(x [M, K] x W [K, N] + b, [..., N])   =  reshape(x, [..., K]) x W + b
    reshape(x [B, M, K] x y [B, K, N], [..., M, N])  =  reshape(x, [..., M, K]) x reshape(y, ...)

PyTorch writes products of more than three axes in the second way. Exporters write linear layers as
Gemm between two reshapes. Now the first two reshapes join, and what
follows the layer is in reach of its epilogue. Exact.
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, Constant, is_kernel_float, shape_of


def matmul_over_reshape(block: Block) -> None:
    """Rewrite reshapes of fp32 products with one matrix, with or without a bias."""
    for var, call in block.calls("relax.reshape"):
        shape, source = shape_of(var), call.args[0]
        if shape is None or not is_kernel_float(var) or not block.is_private(source):
            continue
        if _split_batch(block, var, source):
            continue
        bias = None
        added = block.call(source, "relax.add")
        if added is not None:
            sides = [side for side in added.args if isinstance(side, Constant)]
            others = [side for side in added.args if not isinstance(side, Constant)]
            if len(sides) != 1 or not block.is_private(others[0]):
                continue
            bias, source = sides[0], others[0]
        product = block.call(source, "relax.matmul")
        if product is None:
            continue
        lhs, rhs = (shape_of(argument) for argument in product.args)
        if lhs is None or rhs is None or (len(lhs), len(rhs)) != (2, 2) or not shape:
            continue
        if shape[-1] != rhs[1] or len(shape) < 3 or not _is_row(bias, rhs[1]):
            continue
        extents = [*var.ty.shape.values[:-1], product.args[0].ty.shape.values[1]]
        wide = block.emit(var, relax.op.reshape(product.args[0], extents))
        value = relax.Call(product.op, [wide, product.args[1]], product.attrs, product.ty_args)
        if bias is not None:
            value = relax.op.add(block.emit(var, value), bias)
        block.replace(var, value)


def _split_batch(block: Block, var: relax.Var, source: relax.Expr) -> bool:
    """Give both sides of a product of rank 3 the leading axes of its reshape, if only these."""
    product = block.call(source, "relax.matmul")
    if product is None:
        return False
    shape, inner = shape_of(var), shape_of(source)
    lhs, rhs = (shape_of(argument) for argument in product.args)
    if lhs is None or rhs is None or inner is None or len(shape) < 4:
        return False
    if (len(lhs), len(rhs)) != (3, 3) or lhs[0] != rhs[0] or shape[-2:] != inner[-2:]:
        return False
    lead = list(var.ty.shape.values[:-2])
    sides = [
        block.emit(var, relax.op.reshape(side, [*lead, *side.ty.shape.values[1:]]))
        for side in product.args
    ]
    block.replace(var, relax.Call(product.op, sides, product.attrs, product.ty_args))
    return True


def _is_row(bias: relax.Expr | None, width: int) -> bool:
    """Whether a bias is one number for each column, or there is none."""
    return bias is None or shape_of(bias) in ((width,), (1, width))
