"""Turn the pieces of layer normalisation into ``layer_norm``.

    y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * gamma + beta
      = x * scale + (beta - mean(x) * scale), scale = gamma / sqrt(...)            as Keras has it

over the last axes, or over the channels of images, which go last and come back by
``permute_dims``. The difference may be computed once or twice, the variance by an operator of its
own, the square as a product or a power, the quotient as a product with ``rsqrt`` or ``1 / sqrt``;
gamma and beta may be absent. Sums are rounded in another order than in the pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from tvm import relax

from byoc.ir.dataflow import Block, array_of, constant, dtype_of, is_kernel_float, shape_of
from byoc.ir.pattern import Found, Number, Pattern, call, either, find, plus, times
from codegen_cc.dim import Dim, is_static

_CENTRED = call("subtract", "x", call("mean", "x", name="mean"), name="difference")
_AGAIN = call("subtract", "x", call("mean", "x", name="mean again"), name="again")
_SQUARE_AGAIN = either(call("multiply", _AGAIN, "again"), call("power", _AGAIN, 2.0))
_SQUARE = either(
    call("multiply", "difference", "difference"),
    call("power", "difference", 2.0),
    _SQUARE_AGAIN,
)


def _shifted(square: Pattern) -> Pattern:
    variance = either(call("mean", square, name="variance"), call("variance", "x", name="variance"))
    return plus(variance, Number("epsilon"))


def _inverse(square: Pattern, name: str = "") -> Pattern:
    """The reciprocal of the deviation."""
    shifted = _shifted(square)
    return either(
        call("rsqrt", shifted, name=name), call("divide", 1.0, call("sqrt", shifted), name=name)
    )


NORMALISED = either(
    call("divide", _CENTRED, call("sqrt", _shifted(_SQUARE))), times(_CENTRED, _inverse(_SQUARE))
)

_SCALED = times(_inverse(_SQUARE_AGAIN), "gamma", name="scale")
_SCALE = either(_SCALED, _inverse(_SQUARE_AGAIN, name="scale"))
_MEAN = call("mean", "x", name="mean")
_LESS_MEAN = either(
    times(call("negative", _MEAN), "scale"), call("negative", times(_MEAN, "scale"))
)
#: With gamma, and beta if it is part of them.
SCALED = either(
    times(_CENTRED, times(_inverse(_SQUARE), "gamma")),
    plus(
        times("x", _SCALE),
        either(
            plus(_LESS_MEAN, "beta"), call("subtract", "beta", times(_MEAN, "scale")), _LESS_MEAN
        ),
    ),
    call("subtract", times("x", _SCALE), times(_MEAN, "scale")),
)


def layer_norm_from_pieces(block: Block) -> None:
    """Rewrite fp32 normalisations over axes of fixed extents, with gamma and beta if constant."""
    for var, _ in block.calls("relax.divide", "relax.multiply", "relax.add", "relax.subtract"):
        if not is_kernel_float(var):
            continue
        found = find(block, var, NORMALISED) or find(block, var, SCALED)
        axes = None if found is None else _axes(block, found)
        if axes is None or shape_of(found["x"]) != shape_of(var):
            continue
        if not is_static(tuple(shape_of(var)[axis] for axis in axes)):
            continue  # gamma and beta are constants of this shape; the pieces are right as well
        affine = _affine(block, var, found, axes)
        if affine is not None:
            last, gamma, beta = affine
            vectors = [constant(values, dtype_of(var)) for values in (gamma, beta)]
            kernel = partial(_layer_norm, vectors, found.numbers["epsilon"])
            block.replace(last, with_axes_last(block, last, found["x"], axes, kernel))


def _layer_norm(
    vectors: list[relax.Expr], epsilon: float, x: relax.Expr, axes: list[int]
) -> relax.Expr:
    return relax.op.nn.layer_norm(x, *vectors, axes, epsilon)


def _affine(
    block: Block, var: relax.Var, found: Found, axes: tuple[int, ...]
) -> tuple[relax.Var, np.ndarray, np.ndarray] | None:
    """Where the normalisation ends, gamma and beta; None where the pieces' are no constants."""
    shape = tuple(shape_of(var)[axis] for axis in axes)
    numbers = {"gamma": np.ones(shape), "beta": np.zeros(shape)}
    inside = [name for name in numbers if found.get(name) is not None]
    for name in inside:
        numbers[name] = along(array_of(found[name]), axes, shape_of(var))
        if numbers[name] is None:
            return None
    last = var
    for name, operator in (("gamma", "relax.multiply"), ("beta", "relax.add")):
        if name in inside or "beta" in inside:
            continue
        last, values = followed_by(block, last, operator, axes)
        numbers[name] = numbers[name] if values is None else values
    return last, numbers["gamma"], numbers["beta"]


def _axes(block: Block, found: Found) -> tuple[int, ...] | None:
    """What all means and the variance are over: the last axes, or the channels of images."""
    names = ("mean", "mean again", "variance")
    known = {normalised_axes(block.values[found[n]]) for n in names if found.get(n) is not None}
    return known.pop() if len(known) == 1 else None


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
    block: Block, var: relax.Var, name: str, axes: tuple[int, ...]
) -> tuple[relax.Var, np.ndarray | None]:
    """The only user of a variable if it combines it with a constant of these axes' shape.

    Returns that user and the constant, or the variable itself and None.
    """
    step = only_step(block, var, name)
    values = None if step is None else along(array_of(step[1]), axes, shape_of(var))
    return (var, None) if values is None else (step[0], values)


def along(
    values: np.ndarray | None, axes: tuple[int, ...], shape: tuple[Dim, ...]
) -> np.ndarray | None:
    """A constant that differs along these axes of a shape alone, without the others.

    None for one that differs along others, or is beyond the shape.
    """
    if values is None or values.ndim > len(shape):
        return None
    full = values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
    if any(extent != 1 for axis, extent in enumerate(full.shape) if axis not in axes):
        return None
    extents = tuple(shape[axis] for axis in axes)
    return np.broadcast_to(full.reshape([full.shape[axis] for axis in axes]), extents)


def normalised_axes(mean: relax.Call) -> tuple[int, ...] | None:
    """The axes of a mean that keeps them: the last ones of a known shape, or images' channels."""
    shape = shape_of(mean.args[0])
    if shape is None or not mean.attrs.keepdims or mean.attrs.axis is None:
        return None
    axes = tuple(sorted(int(axis) % len(shape) for axis in mean.attrs.axis))
    last = tuple(range(len(shape) - len(axes), len(shape)))
    return axes if axes == last or (axes == (1,) and len(shape) > 2) else None


def with_axes_last(
    block: Block,
    var: relax.Var,
    source: relax.Expr,
    axes: tuple[int, ...],
    normalise: Callable[[relax.Expr, list[int]], relax.Expr],
) -> relax.Expr:
    """``normalise(x, axes)`` of the axes when they are the last ones, moved there and back."""
    rank = len(shape_of(source))
    order = [axis for axis in range(rank) if axis not in axes] + list(axes)
    if order == list(range(rank)):
        return normalise(source, list(axes))
    turned = block.emit(var, relax.op.permute_dims(source, order))
    normal = block.emit(var, normalise(turned, list(range(rank - len(axes), rank))))
    return relax.op.permute_dims(normal, [order.index(axis) for axis in range(rank)])
