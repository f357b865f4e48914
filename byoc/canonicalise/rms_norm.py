"""Turn the pieces of root-mean-square normalisation into ``rms_norm``.

    y = x / sqrt(mean(x^2) + epsilon) * gamma

over the last axes, or over the channels of images; the quotient may be a product with ``rsqrt`` or
with ``1 / sqrt``, the square a product or a power.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from tvm import relax

from byoc.canonicalise.layer_norm import followed_by, normalised_axes, with_axes_last
from byoc.ir.dataflow import Block, constant, dtype_of, is_kernel_float, shape_of
from byoc.ir.pattern import Number, call, either, find, plus, times
from codegen_cc.dim import is_static

_SQUARE = either(call("multiply", "x", "x"), call("power", "x", 2.0))
_SHIFTED = plus(call("mean", _SQUARE, name="mean"), Number("epsilon"))
_ROOT = call("sqrt", _SHIFTED)
NORMALISED = either(
    call("divide", "x", _ROOT),
    times("x", either(call("rsqrt", _SHIFTED), call("divide", 1.0, _ROOT))),
)


def rms_norm_from_pieces(block: Block) -> None:
    """Rewrite fp32 quotients of a tensor and its root mean square, with gamma if it follows."""
    for var, _ in block.calls("relax.divide", "relax.multiply"):
        found = find(block, var, NORMALISED) if is_kernel_float(var) else None
        axes = None if found is None else normalised_axes(block.values[found["mean"]])
        if axes is None or shape_of(found["x"]) != shape_of(var):
            continue
        shape = tuple(shape_of(var)[axis] for axis in axes)
        if not is_static(shape):
            continue
        last, scale = followed_by(block, var, "relax.multiply", axes)
        gamma = constant(np.ones(shape) if scale is None else scale, dtype_of(var))
        kernel = partial(_rms_norm, gamma, found.numbers["epsilon"])
        block.replace(last, with_axes_last(block, last, found["x"], axes, kernel))


def _rms_norm(gamma: relax.Expr, epsilon: float, x: relax.Expr, axes: list[int]) -> relax.Expr:
    return relax.op.nn.rms_norm(x, gamma, axes, epsilon)
