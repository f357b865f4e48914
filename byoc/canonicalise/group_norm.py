"""Write group and instance normalisation as layer normalisation of groups, scale and shift.

    y = layer_norm(x as [N, G, C / G * pixels]) as x's shape * gamma + beta

with gamma and beta per channel. An instance norm has one channel in each group.
"""

from __future__ import annotations

from math import prod

import numpy as np
from tvm import relax

from byoc.ir.dataflow import (
    Block,
    array_of,
    constant,
    dtype_of,
    is_kernel_float,
    op_name,
    shape_of,
    static_shape_of,
)
from codegen_cc.dim import is_static


def layer_norm_from_groups(block: Block) -> None:
    """Rewrite fp32 norms over all axes behind the channels; the batch may be symbolic."""
    for var, call in block.calls("relax.nn.group_norm", "relax.nn.instance_norm"):
        shape, attrs = shape_of(call.args[0]), call.attrs
        if not shape or not is_static(shape[1:]) or not is_kernel_float(var):
            continue
        if any(shape_of(vector) != shape[1:2] for vector in call.args[1:]):
            continue
        rank = len(shape)
        axes = sorted(int(axis) % rank for axis in attrs.axes)
        if int(attrs.channel_axis) % rank != 1 or axes != list(range(2, rank)):
            continue
        groups = int(attrs.num_groups) if op_name(call) == "relax.nn.group_norm" else shape[1]
        if shape[1] % groups != 0:
            continue
        size = shape[1] // groups * prod(shape[2:])
        batch = call.args[0].ty.shape.values[0]
        rows = block.emit(var, relax.op.reshape(call.args[0], (batch, groups, size)))
        ones, zeros = (constant(np.full(size, value), dtype_of(var)) for value in (1.0, 0.0))
        epsilon = float(attrs.epsilon)
        normal = block.emit(var, relax.op.nn.layer_norm(rows, ones, zeros, [2], epsilon))
        value = relax.op.reshape(normal, var.ty.shape)
        for operator, operand, neutral in (
            (relax.op.multiply, call.args[1], 1.0),
            (relax.op.add, call.args[2], 0.0),
        ):
            wide = _per_channel(block, var, operand, neutral, rank)
            if wide is not None:
                value = operator(block.emit(var, value), wide)
        block.replace(var, value)


def layer_norm_with_variable_scale(block: Block) -> None:
    """Take gamma and beta that are no constants out of fp32 layer norms over the last axes."""
    for var, call in block.calls("relax.nn.layer_norm"):
        source, gamma, beta = call.args
        shape = static_shape_of(gamma)
        if array_of(gamma) is not None and array_of(beta) is not None:
            continue
        if shape is None or shape != static_shape_of(beta) or not is_kernel_float(var):
            continue
        axes = [int(axis) % source.ty.ndim for axis in call.attrs.axes]
        last = list(range(source.ty.ndim - len(axes), source.ty.ndim))
        if axes != last or not (call.attrs.scale and call.attrs.center):
            continue
        ones, zeros = (constant(np.full(shape, value), dtype_of(var)) for value in (1.0, 0.0))
        epsilon = float(call.attrs.epsilon)
        normal = block.emit(var, relax.op.nn.layer_norm(source, ones, zeros, axes, epsilon))
        scaled = block.emit(var, relax.op.multiply(normal, gamma))
        block.replace(var, relax.op.add(scaled, beta))


def _per_channel(
    block: Block, var: relax.Var, expr: relax.Expr, neutral: float, rank: int
) -> relax.Expr | None:
    """Gamma or beta [C] in a shape that broadcasts; None if it is constant and changes nothing."""
    wide = (*shape_of(expr), *(1,) * (rank - 2))
    values = array_of(expr)
    if values is None:
        return block.emit(var, relax.op.reshape(expr, wide))
    return None if (values == neutral).all() else constant(values.reshape(wide), dtype_of(expr))
