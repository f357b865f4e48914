"""Random numbers, the same at every run: PyTorch's own generator is no part of a library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from byoc.frontends.drawn_numbers import drawn, seed_of
from byoc.frontends.torch.converters.order import ALL
from byoc.frontends.torch.values import Graph, Value

op = relax.op

#: Whole numbers that a uniform one tells apart.
_MOST = 1 << 23


def _drawn(
    g: Graph, shape: list[Any], normal: bool, begin: float = 0.0, width: float = 1.0
) -> relax.Expr:
    """Numbers of float32: normal ones of a mean and a deviation, or uniform ones."""
    loops = drawn(shape, seed_of(g.builder.node_at_work), normal, begin, width)
    return g.emit(g.builder.emit_te(loops))


def _of_shape(normal: bool) -> Callable[..., relax.Expr]:
    """Numbers in the shape and dtype of the result."""
    return lambda g, **_: g.tensor(_drawn(g, g.shape, normal), g.dtype)


def uniform(g: Graph, **named: Any) -> relax.Expr:
    """Uniform numbers from a number up to another."""
    begin, end = named["from"], named["to"]  # the former is no name in Python
    return g.tensor(_drawn(g, g.shape, False, begin, end - begin), g.dtype)


def normal(g: Graph, x: Value = None, mean: Value = 0.0, std: Value = 1.0, **_: Any) -> relax.Expr:
    """Normal numbers of means and deviations, which may be tensors."""
    if isinstance(mean, int | float) and isinstance(std, int | float):
        return g.tensor(_drawn(g, g.shape, True, float(mean), float(std)), g.dtype)
    numbers = g.tensor(_drawn(g, g.shape, True), g.dtype)
    return op.add(op.multiply(numbers, g.tensor(std, g.dtype)), g.tensor(mean, g.dtype))


def integers(g: Graph, high: Value, low: Value = 0, **_: Any) -> relax.Expr:
    """Whole numbers from ``low`` up to, and without, ``high``."""
    if not (isinstance(low, int) and isinstance(high, int)) or high - low > _MOST:
        raise ValueError(f"whole numbers from {low} to {high}; need bounds 2^23 apart or less")
    numbers = g.emit(op.floor(_drawn(g, g.shape, False, 0.0, float(high - low))))
    return op.add(g.tensor(numbers, g.dtype), g.tensor(low, g.dtype))


def permutation(g: Graph, n: Value, **_: Any) -> relax.Expr:
    """The numbers below ``n`` in any order: that of as many uniform ones."""
    numbers = _drawn(g, g.shape, False)
    return g.tensor(g.emit(op.topk(numbers, ALL, 0, "indices", False, "int64")), g.dtype)


def truths(g: Graph, x: Value, p: Value = None, generator: object = None) -> relax.Expr:
    """1 with the probability given, else 0."""
    numbers = _drawn(g, g.shape, False)
    return op.astype(op.less(numbers, g.tensor(x if p is None else p, "float32")), g.dtype)


def exponential(g: Graph, x: Value, lambd: float = 1.0, generator: object = None) -> relax.Expr:
    """Waiting times of what happens ``lambd`` times in a unit."""
    logarithm = g.emit(op.log(_drawn(g, g.shape, False)))
    return g.tensor(g.emit(op.multiply(logarithm, g.tensor(-1 / lambd, "float32"))), g.dtype)


def chosen(
    g: Graph, x: Value, num_samples: int, replacement: bool = False, generator: object = None
) -> relax.Expr:
    """Places along the last axis, with probabilities as their weights.

    The place of the greatest ``log(weight) - log(-log(u))`` is such a choice, and so are the
    places of the next greatest among those that are left.
    """
    weights = g.tensor(x, "float32")
    last, shape = weights.ty.ndim - 1, list(weights.ty.shape.values)
    several = replacement and num_samples > 1
    if several:
        weights = g.emit(op.expand_dims(weights, last))
        shape = [*shape[:-1], num_samples, shape[-1]]
    noise = g.emit(op.negative(g.emit(op.log(_drawn(g, shape, False)))))
    scores = g.emit(op.subtract(g.emit(op.log(weights)), g.emit(op.log(noise))))
    if several:
        return op.argmax(scores, last + 1)
    return op.topk(scores, num_samples, last, "indices", True, "int64")


RANDOM: dict[str, Callable[..., relax.Expr]] = {
    **dict.fromkeys(("rand", "rand_like"), _of_shape(False)),
    **dict.fromkeys(("randn", "randn_like"), _of_shape(True)),
    "uniform": uniform,
    **dict.fromkeys(("normal", "normal_functional"), normal),
    **dict.fromkeys(("randint", "randint_like"), integers),
    "randperm": permutation,
    "bernoulli": truths,
    "exponential": exponential,
    "multinomial": chosen,
}
