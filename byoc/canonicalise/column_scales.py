"""Put the scales of a product's columns into its weight of integers.

    matmul(x, dequantize(w, s, z)) * t   = matmul(x, dequantize(w, s t, z))   t [N], w [K, N]

torchao's layers with int8 weights multiply the product.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.canonicalise.dequantised_weights import DEQUANTIZE
from byoc.ir.algebra import fits_single
from byoc.ir.dataflow import Block, Constant, array_of, constant, shape_of
from codegen_cc.dtypes import SINGLE


def column_scales(block: Block) -> None:
    """Let the weight's scales be those of the columns as well."""
    for var, call in block.calls("relax.multiply"):
        for product, factors in (call.args, reversed(call.args)):
            scaled = _scaled(block, var, product, factors)
            if scaled is not None:
                block.replace(var, scaled)
                break


def _scaled(
    block: Block, var: relax.Var, product: relax.Expr, factors: relax.Expr
) -> relax.Call | None:
    """The product with scaled columns; None where it has no weight of integers."""
    matmul, by = block.call(product, "relax.matmul"), array_of(factors)
    if matmul is None or by is None or not block.is_private(product):
        return None
    weight = block.call(matmul.args[1], DEQUANTIZE)
    if weight is None or shape_of(product) != shape_of(var):
        return None
    integers, scale, zero_point = weight.args
    known = array_of(scale)
    if not isinstance(integers, Constant) or known is None or len(shape_of(integers)) != 2:
        return None
    columns, axis = shape_of(integers)[1], int(weight.attrs.axis) % 2
    if by.size != columns or by.shape[-1:] != (columns,):
        return None
    if known.size > 1 and axis != 1:
        return None
    both = known.reshape(-1).astype(np.double) * by.reshape(-1)
    if not fits_single(both):
        return None
    scales = constant(both, SINGLE)
    points = array_of(zero_point)
    if points is None:
        return None
    zeros = constant(np.broadcast_to(points.reshape(-1), [columns]), str(points.dtype))
    given = block.emit(var, relax.op.dequantize(integers, scales, zeros, 1, SINGLE), "weight")
    return relax.Call(matmul.op, [matmul.args[0], given], matmul.attrs, matmul.ty_args)
