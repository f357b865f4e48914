"""Keep the integers of weights, and one dequantize for each product that reads it.

    permute(dequantize(w))   = dequantize(permute(w))          reshape alike, where axis 0 stays
    take(dequantize(w), i)   = dequantize(take(w, i))          one scale for the whole table
    dequantize(w, s, z)      = dequantize(w - z, s, 0)         w - z as int8, where it fits
    f(d), g(d)               = f(d), g(d')                     d, d' = dequantize(x); f a product

A product whose sides both come from ``dequantize`` is one node on integers
(``byoc.patterns.quantised``).  So the weights of such products are not folded to floats, and a
``dequantize`` that others read too has a twin for each product.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.canonicalise.block_weight import block_weight, is_kept_block
from byoc.canonicalise.remove_no_ops import permuted_axes
from byoc.ir.dataflow import (
    Block,
    Constant,
    array_of,
    constant,
    op_name,
    scalar_of,
    shape_of,
    static_shape_of,
)
from codegen_cc.dtypes import KERNEL_BYTES, SINGLE

DEQUANTIZE = "relax.dequantize"

#: Products that have a kernel on integers: the weight is their second operand.  That of one axis
#: becomes one of two (``lines_to_images``).
PRODUCTS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.matmul")

#: Operators that turn a weight around before a product reads it.
_TURNING = ("relax.permute_dims", "relax.reshape", "relax.expand_dims")

#: Functions of two quantised tensors that have a kernel on integers.
_BINARY = ("relax.add", "relax.subtract", "relax.multiply")


def dequantised(call: relax.Call, arrays: list[np.ndarray]) -> np.ndarray | None:
    """(x - zero point) scale in fp32, along the axis that the call names; None for others."""
    x, scale, zero_point = arrays
    if str(call.ty.dtype) != SINGLE or scale.dtype != np.single:
        return None
    shape = [1] * x.ndim
    if scale.size > 1:
        shape[int(call.attrs.axis)] = scale.size
    if scale.size > 1 and scale.size != x.shape[int(call.attrs.axis)]:
        return None
    wide = x.astype(np.int64) - zero_point.astype(np.int64).reshape(
        shape if zero_point.size > 1 else [1] * x.ndim
    )
    return wide.astype(np.single) * scale.reshape(shape)


def is_kept(block: Block, var: relax.Var) -> bool:
    """Whether a variable is, or is part of, the dequantised weight of products on integers."""
    call = block.call(var, DEQUANTIZE)
    if call is None:
        return is_kept_block(block, var)
    if not isinstance(call.args[0], Constant):
        return False
    if str(call.args[0].ty.dtype) not in KERNEL_BYTES or len(static_shape_of(call) or ()) < 2:
        return False
    return not block.is_fixed(var) and _feeds_products(block, var)


def _feeds_products(block: Block, var: relax.Var) -> bool:
    """Whether products that have a kernel on integers read a variable, as their weight, alone.

    Those of matrices have one for data of floats as well.  Or what picks from a table of one scale,
    before it is dequantised.
    """
    users = block.users(var)
    for user in users:
        call = block.values[user]
        if op_name(call) == "relax.shape_of":
            continue  # the importer asks, and the answer is a constant
        if op_name(call) == "relax.take" and call.args[0] == var:
            table = block.call(var, DEQUANTIZE)
            if table is None or any(scalar_of(number) is None for number in table.args[1:]):
                return False
        elif op_name(call) in _TURNING and not block.is_fixed(user):
            if not _feeds_products(block, user):
                return False
        elif (
            op_name(call) not in PRODUCTS
            or call.args[1] != var
            or call.args[0] == var
            or (op_name(call) != "relax.matmul" and block.call(call.args[0], DEQUANTIZE) is None)
        ):
            return False
    return bool(users)


def dequantised_weights(block: Block) -> None:
    """Turn the integers instead of the weights, and give each product its own dequantize."""
    for var, call in block.calls(*_TURNING):
        inner = block.call(call.args[0], DEQUANTIZE)
        if inner is not None and isinstance(inner.args[0], Constant):
            _turn(block, var, call, inner)
    for var, call in block.calls(DEQUANTIZE):
        if is_kept(block, var) and _meets_integers(block, var):
            _take_off_zero_point(block, var, call)
    for var, call in block.calls("relax.take"):
        _take_integers(block, var, call)
    for var, call in block.calls(*PRODUCTS, *_BINARY):
        inner = [block.call(operand, DEQUANTIZE) for operand in call.args]
        if any(of is None for of in inner) or (
            shape_of(inner[0]) != shape_of(inner[1]) and op_name(call) in _BINARY
        ):
            continue
        operands = [
            operand if block.is_private(operand) else block.emit(var, of, "dequantised")
            for operand, of in zip(call.args, inner, strict=True)
        ]
        if operands != list(call.args):
            block.replace(var, relax.Call(call.op, operands, call.attrs, call.ty_args, call.span))


def _meets_integers(block: Block, var: relax.Var) -> bool:
    """Whether the data of a product with this weight are quantised, too: its kernel has no zero
    point of the weight."""
    users = (block.values[user] for user in block.users(var))
    return any(block.call(call.args[0], DEQUANTIZE) is not None for call in users)


def _turn(block: Block, var: relax.Var, call: relax.Call, inner: relax.Call) -> None:
    array, shape = array_of(inner.args[0]), static_shape_of(call)
    axis = int(inner.attrs.axis) % max(array.ndim, 1)
    if op_name(call) == "relax.permute_dims":
        order = permuted_axes(call)
        turned, axis = array.transpose(order), order.index(axis)
    else:
        along = array_of(inner.args[1])
        if shape is None or (along.size > 1 and (axis != 0 or shape[0] != array.shape[0])):
            return
        turned = array.reshape(shape)
    weight = constant(turned, str(array.dtype))
    _, scale, zero_point = inner.args
    block.replace(var, relax.op.dequantize(weight, scale, zero_point, axis, SINGLE))


def _take_off_zero_point(block: Block, var: relax.Var, call: relax.Call) -> None:
    values, zero_point = array_of(call.args[0]), array_of(call.args[2])
    if zero_point is None or (values.dtype == np.int8 and not zero_point.any()):
        return
    along = [1] * values.ndim
    axis = int(call.attrs.axis)
    if zero_point.size > 1:
        along[axis] = zero_point.size
    moved = values.astype(np.int32) - zero_point.astype(np.int32).reshape(along)
    if moved.min(initial=0) < -128 or moved.max(initial=0) > 127:
        return
    weight = constant(moved, "int8")
    zeros = constant(np.zeros_like(zero_point, np.int8), "int8")
    block.replace(var, relax.op.dequantize(weight, call.args[1], zeros, axis, SINGLE))


def _take_integers(block: Block, var: relax.Var, call: relax.Call) -> None:
    inner = block.call(call.args[0], DEQUANTIZE)
    if inner is None or not isinstance(inner.args[0], Constant):
        return
    table, scale, zero_point = inner.args
    sizes = [array_of(number) for number in (scale, zero_point)]
    if str(table.ty.dtype) not in KERNEL_BYTES or any(s is None or s.size != 1 for s in sizes):
        return
    rows = relax.Call(call.op, [table, call.args[1]], call.attrs, call.ty_args, call.span)
    taken = block.emit(var, rows, "taken")
    block.replace(var, relax.op.dequantize(taken, scale, zero_point, -1, SINGLE))


def fold_weights(block: Block, call: relax.Call) -> bool:
    """Make floating-point constants of a product's dequantised weights; whether there were any."""
    found = False
    for argument in call.args:
        blocks = block_weight(block, argument)
        if blocks is not None:
            block.alias(argument, constant(blocks.floats(), SINGLE))
            found = True
            continue
        inner = block.call(argument, DEQUANTIZE)
        arrays = [array_of(item) for item in inner.args] if inner is not None else [None]
        if all(array is not None for array in arrays):
            values = dequantised(inner, arrays)
            if values is not None:
                block.alias(argument, constant(values, SINGLE))
                found = True
    return found
