"""Turn the pieces of layer normalisation into ``layer_norm``.

    y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * gamma + beta

over the last axes. The difference may be computed once or twice, the variance by an operator of
its own, the square as a product or a power, the quotient as a product with ``rsqrt``; gamma and
beta may be absent. Sums are rounded in another order than in the pieces.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.ir.dataflow import Block, array_of, constant, dtype_of, is_kernel_float, shape_of
from byoc.ir.pattern import Number, call, either, find, plus, times
from codegen_cc.dim import is_static

_CENTRED = call("subtract", "x", call("mean", "x", name="mean"), name="difference")
_AGAIN = call("subtract", "x", call("mean", "x", name="mean again"), name="again")
_SQUARE = either(
    call("multiply", "difference", "difference"),
    call("multiply", _AGAIN, "again"),
    call("power", either("difference", _AGAIN), 2.0),
)
_VARIANCE = either(call("mean", _SQUARE, name="variance"), call("variance", "x", name="variance"))
_SHIFTED = plus(_VARIANCE, Number("epsilon"))
NORMALISED = either(
    call("divide", _CENTRED, call("sqrt", _SHIFTED)), times(_CENTRED, call("rsqrt", _SHIFTED))
)


def layer_norm_from_pieces(block: Block) -> None:
    """Rewrite fp32 normalisations over axes of fixed extents, with gamma and beta if constant."""
    for var, _ in block.calls("relax.divide", "relax.multiply"):
        found = find(block, var, NORMALISED) if is_kernel_float(var) else None
        if found is None:
            continue
        means = ("mean", "mean again", "variance")
        known = {last_axes(block.values[found[n]]) for n in means if found.get(n) is not None}
        axes = known.pop()
        if known or axes is None:
            continue
        source = found["x"]
        shape = tuple(shape_of(source)[axis] for axis in axes)
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
        epsilon = found.numbers["epsilon"]
        block.replace(last, relax.op.nn.layer_norm(source, *affine, list(axes), epsilon))


def only_step(block: Block, var: relax.Var, name: str) -> tuple[relax.Var, relax.Expr] | None:
    """The only reader of a variable, of its shape, and what this operator combines it with."""
    if not block.is_private(var):
        return None
    (reader,) = block.users(var)
    step = block.call(reader, name)
    if step is None or shape_of(reader) != shape_of(var):
        return None
    return reader, step.args[1] if step.args[0] == var else step.args[0]


def followed_by(
    block: Block, var: relax.Var, name: str, shape: tuple[int, ...]
) -> tuple[relax.Var, np.ndarray | None]:
    """The only user of a variable if it combines it with a constant of the axes' shape.

    Returns that user and the constant, or the variable itself and None.
    """
    step = only_step(block, var, name)
    values = None if step is None else array_of(step[1])
    if values is None:
        return var, None
    reader = step[0]
    if values.size != 1:
        kept = values.shape[max(0, values.ndim - len(shape)) :]
        if kept != shape or values.size != int(np.prod(shape)):
            return var, None
        values = values.reshape(shape)
    return reader, np.broadcast_to(values.reshape(()) if values.size == 1 else values, shape)


def last_axes(mean: relax.Call) -> tuple[int, ...] | None:
    """The axes of a mean that keeps them, if they are the last ones of a known shape."""
    shape = shape_of(mean.args[0])
    if shape is None or not mean.attrs.keepdims or mean.attrs.axis is None:
        return None
    axes = tuple(sorted(int(axis) % len(shape) for axis in mean.attrs.axis))
    return axes if axes == tuple(range(len(shape) - len(axes), len(shape))) else None
