"""Turn the pieces of root-mean-square normalisation into ``rms_norm``.

    y = x / sqrt(mean(x^2) + epsilon) * gamma

over the last axes; the quotient may be a product with ``rsqrt`` or with ``1 / sqrt``, the square a
product or a power.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.canonicalise.layer_norm import followed_by, last_axes
from byoc.ir.dataflow import (
    Block,
    constant,
    dtype_of,
    is_kernel_float,
    op_name,
    scalar_of,
    shape_of,
)
from codegen_cc.dim import is_static


def rms_norm_from_pieces(block: Block) -> None:
    """Rewrite fp32 quotients of a tensor and its root mean square, with gamma if it follows."""
    for var, call in block.calls("relax.divide", "relax.multiply"):
        found = _normalised(block, call) if is_kernel_float(var) else None
        if found is None or shape_of(found[0]) != shape_of(var):
            continue
        source, axes, epsilon = found
        shape = tuple(shape_of(source)[axis] for axis in axes)
        if not is_static(shape):
            continue
        last, scale = followed_by(block, var, "relax.multiply", shape)
        gamma = constant(np.ones(shape) if scale is None else scale, dtype_of(var))
        block.replace(last, relax.op.nn.rms_norm(source, gamma, list(axes), epsilon))


def _normalised(block: Block, call: relax.Call) -> tuple[relax.Expr, tuple[int, ...], float] | None:
    pairs = [tuple(call.args)]
    if op_name(call) == "relax.multiply":
        pairs.append(tuple(reversed(call.args)))
    for source, other in pairs:
        deviation = _deviation(block, other, op_name(call) == "relax.divide")
        shifted = block.call(deviation, "relax.add") if deviation is not None else None
        if shifted is None:
            continue
        for mean, number in (shifted.args, reversed(shifted.args)):
            epsilon = scalar_of(number)
            axes = _mean_of_squares(block, mean, source)
            if epsilon is not None and axes is not None:
                return source, axes, epsilon
    return None


def _deviation(block: Block, expr: relax.Expr, divided: bool) -> relax.Expr | None:
    """What the root is taken of, in ``/ sqrt(d)``, ``* rsqrt(d)`` and ``* (1 / sqrt(d))``."""
    root = block.call(expr, "relax.sqrt" if divided else "relax.rsqrt")
    if root is None and not divided:
        quotient = block.call(expr, "relax.divide")
        if quotient is not None and scalar_of(quotient.args[0]) == 1.0:
            root = block.call(quotient.args[1], "relax.sqrt")
    return root.args[0] if root is not None else None


def _mean_of_squares(block: Block, expr: relax.Expr, source: relax.Expr) -> tuple[int, ...] | None:
    mean = block.call(expr, "relax.mean")
    square = block.call(mean.args[0], "relax.multiply", "relax.power") if mean is not None else None
    if square is None or square.args[0] != source:
        return None
    right = square.args[1]
    same = right == source if op_name(square) == "relax.multiply" else scalar_of(right) == 2.0
    return last_axes(mean) if same else None
