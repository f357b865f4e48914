"""The statistics of normalisations, which their derivatives read."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from byoc.frontends.torch.values import Graph, Value

op = relax.op

#: The places of the mean, and of one by the standard deviation, in the result of a normalisation.
_MEAN, _SCALE = 1, 2


def of_layer(
    g: Graph, input: Value, normalized_shape: Sequence[int], eps: float, **others: object
) -> list[relax.Expr | None]:
    """Of each row of the last axes, with an extent of 1 in place of these."""
    axes = list(range(-len(normalized_shape), 0))
    return _statistics(g, g.tensor(input), axes, True, eps)


def of_groups(g: Graph, input: Value, groups: int, eps: float) -> list[relax.Expr | None]:
    """Of each image's groups of channels."""
    x = g.tensor(input)
    apart = op.reshape(x, [x.ty.shape.values[0], groups, -1])
    return _statistics(g, g.emit(apart), [2], False, eps)


def _statistics(
    g: Graph, x: relax.Expr, axes: list[int], keepdims: bool, eps: float
) -> list[relax.Expr | None]:
    """Nothing where nobody reads them."""
    if not {_MEAN, _SCALE} & set(g.read):
        return [None, None]
    mean = g.emit(op.mean(x, axes, True))
    apart = g.emit(op.subtract(x, mean))
    variance = op.mean(op.multiply(apart, apart), axes, keepdims)
    scale = op.rsqrt(op.add(g.emit(variance), g.tensor(eps)))
    return [mean if keepdims else op.squeeze(mean, axes), scale]
