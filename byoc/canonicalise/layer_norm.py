"""Turn the pieces of layer normalisation into ``layer_norm``.

    y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * gamma + beta

over the last axes. The difference may be computed once or twice, the variance by an operator of
its own, the square as a product or a power, the quotient as a product with ``rsqrt``; gamma and
beta may be absent. Sums are rounded in another order than in the pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from byoc.ir.dataflow import (
    Block,
    array_of,
    constant,
    dtype_of,
    is_kernel_float,
    op_name,
    scalar_of,
    shape_of,
)
from codegen_cc.dim import is_static


@dataclass(frozen=True)
class Normalised:
    """``(x - mean) / sqrt(variance + epsilon)`` over ``axes``."""

    source: relax.Expr
    axes: tuple[int, ...]
    epsilon: float


def layer_norm_from_pieces(block: Block) -> None:
    """Rewrite fp32 normalisations over axes of fixed extents, with gamma and beta if constant."""
    for var, call in block.calls("relax.divide", "relax.multiply"):
        found = _normalised(block, call) if is_kernel_float(var) else None
        if found is None:
            continue
        shape = tuple(shape_of(found.source)[axis] for axis in found.axes)
        if not is_static(shape):
            continue  # gamma and beta are constants of this shape; the pieces are right as well
        gamma, beta = np.ones(shape), np.zeros(shape)
        last, scale = followed_by(block, var, "relax.multiply", shape)
        if scale is not None:
            gamma = scale
        last, shift = followed_by(block, last, "relax.add", shape)
        if shift is not None:
            beta = shift
        affine = (constant(values, dtype_of(var)) for values in (gamma, beta))
        normal = relax.op.nn.layer_norm(found.source, *affine, list(found.axes), found.epsilon)
        block.replace(last, normal)


def followed_by(
    block: Block, var: relax.Var, name: str, shape: tuple[int, ...]
) -> tuple[relax.Var, np.ndarray | None]:
    """The only user of a variable if it combines it with a constant of the axes' shape.

    Returns that user and the constant, or the variable itself and None.
    """
    if not block.is_private(var):
        return var, None
    (reader,) = block.users(var)
    call = block.call(reader, name)
    if call is None or shape_of(reader) != shape_of(var):
        return var, None
    values = array_of(call.args[1] if call.args[0] == var else call.args[0])
    if values is None:
        return var, None
    if values.size != 1:
        kept = values.shape[max(0, values.ndim - len(shape)) :]
        if kept != shape or values.size != int(np.prod(shape)):
            return var, None
        values = values.reshape(shape)
    return reader, np.broadcast_to(values.reshape(()) if values.size == 1 else values, shape)


def _normalised(block: Block, call: relax.Call) -> Normalised | None:
    pairs = [tuple(call.args)]
    root = ("relax.sqrt",)
    if op_name(call) == "relax.multiply":
        pairs, root = [tuple(call.args), tuple(reversed(call.args))], ("relax.rsqrt",)
    for difference, denominator in pairs:
        deviation = block.call(denominator, *root)
        centred = _centred(block, difference)
        if deviation is None or centred is None:
            continue
        shifted = block.call(deviation.args[0], "relax.add")
        if shifted is None:
            continue
        for variance, other in (shifted.args, reversed(shifted.args)):
            epsilon = scalar_of(other)
            if epsilon is not None and _is_variance(block, variance, centred):
                return Normalised(*centred, epsilon)
    return None


def _centred(block: Block, expr: relax.Expr) -> tuple[relax.Expr, tuple[int, ...]] | None:
    """``x`` and axes of ``x - mean(x, axes, keepdims=True)`` over the last axes."""
    difference = block.call(expr, "relax.subtract")
    mean = block.call(difference.args[1], "relax.mean") if difference is not None else None
    if mean is None or mean.args[0] != difference.args[0]:
        return None
    axes = last_axes(mean)
    return None if axes is None else (mean.args[0], axes)


def last_axes(mean: relax.Call) -> tuple[int, ...] | None:
    """The axes of a mean that keeps them, if they are the last ones of a known shape."""
    shape = shape_of(mean.args[0])
    if shape is None or not mean.attrs.keepdims or mean.attrs.axis is None:
        return None
    axes = tuple(sorted(int(axis) % len(shape) for axis in mean.attrs.axis))
    return axes if axes == tuple(range(len(shape) - len(axes), len(shape))) else None


def _is_variance(
    block: Block, expr: relax.Expr, centred: tuple[relax.Expr, tuple[int, ...]]
) -> bool:
    mean = block.call(expr, "relax.mean", "relax.variance")
    if mean is None or last_axes(mean) != centred[1]:
        return False
    if op_name(mean) == "relax.variance":
        return mean.args[0] == centred[0]
    square = block.call(mean.args[0], "relax.multiply", "relax.power")
    if square is None:
        return False
    left, right = square.args
    same = left == right if op_name(square) == "relax.multiply" else scalar_of(right) == 2.0
    return same and _centred(block, left) == centred
