"""Normalisations, softmax, and reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import torch
from tvm import relax

from byoc.frontends.torch.converters.comparison import DOUBLE, greatest, least, unequal
from byoc.frontends.torch.converters.read_statistics import of_groups, of_layer
from byoc.frontends.torch.sizes import size_tensor
from byoc.frontends.torch.values import Graph, Value
from byoc.ir.dataflow import dtype_of, shape_of

op = relax.op


def batch_norm(
    g: Graph,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    momentum: float,
    eps: float,
    training: bool = False,
    cudnn_enabled: bool = False,
) -> relax.Expr:
    """``(x - running_mean) / sqrt(running_var + eps) weight + bias`` along axis 1.

    A module that keeps no statistics normalises by those of its input.
    """
    x = g.tensor(input)
    channels = x.ty.shape.values[1]
    weight, bias = _or(g, weight, 1.0, [channels]), _or(g, bias, 0.0, [channels])
    if running_mean is None or running_var is None:
        axes = [0, *range(2, x.ty.ndim)]
        return _scaled(_standardised(g, x, axes, eps), weight, bias, x.ty.ndim)
    if training:
        raise ValueError("BatchNorm of a module in training mode; call .eval() before exporting it")
    mean, variance = g.tensor(running_mean), g.tensor(running_var)
    # Under autocast a float32 layer may be given halves.
    wide = dtype_of(mean)
    made = op.nn.batch_norm(
        g.tensor(x, wide),
        g.tensor(weight, wide),
        g.tensor(bias, wide),
        mean,
        variance,
        axis=1,
        epsilon=eps,
        training=False,
    )
    return g.tensor(g.emit(relax.TupleGetItem(g.emit(made), 0)), g.dtype)


def native_batch_norm(g: Graph, **named: object) -> list[relax.Expr | None]:
    """The same, and what training would save, which nobody may read."""
    return [batch_norm(g, **named), None, None]


def no_stats(
    g: Graph,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[relax.Expr | None]:
    """By the statistics of the input, which nobody may read."""
    return [batch_norm(g, input, weight, bias, None, None, momentum, eps), None, None]


def _statistics(
    g: Graph, x: relax.Expr, axes: Sequence[int], keepdims: bool = True
) -> tuple[relax.Expr, relax.Expr]:
    mean = g.emit(op.mean(x, axes, True))
    apart = g.emit(op.subtract(x, mean))
    return mean, g.emit(op.mean(op.multiply(apart, apart), axes, keepdims))


def _standardised(g: Graph, x: relax.Expr, axes: Sequence[int], eps: float) -> relax.Expr:
    """``(x - mean) / sqrt(variance + eps)``: TVM's own normalisations know no float64."""
    mean, variance = _statistics(g, x, axes)
    return op.multiply(op.subtract(x, mean), op.rsqrt(op.add(variance, g.tensor(eps))))


def _scaled(x: relax.Expr, gamma: relax.Expr, beta: relax.Expr, rank: int) -> relax.Expr:
    """``x gamma + beta`` along axis 1."""
    gamma, beta = (op.reshape(value, [1, -1] + [1] * (rank - 2)) for value in (gamma, beta))
    return op.add(op.multiply(x, gamma), beta)


def _or(g: Graph, value: Value | None, number: float, shape: Sequence[object]) -> relax.Expr:
    """The value, or where there is none a tensor of one number."""
    if value is not None:
        return g.tensor(value)
    sizes = [int(extent) for extent in shape]
    return g.tensor(torch.full(sizes, number, dtype=getattr(torch, g.dtype)))


def layer_norm(
    g: Graph,
    input: Value,
    normalized_shape: Sequence[int],
    weight: Value | None,
    bias: Value | None,
    eps: float,
    cudnn_enable: bool = False,
) -> relax.Expr:
    """Over the last axes, which have the shape ``normalized_shape``."""
    axes = list(range(-len(normalized_shape), 0))
    # Under autocast a float32 layer may be given halves.
    dtype = g.promoted(*(value for value in (input, weight, bias) if value is not None))
    gamma, beta = (
        g.tensor(_or(g, value, number, normalized_shape), dtype)
        for value, number in ((weight, 1.0), (bias, 0.0))
    )
    x = g.tensor(input, dtype)
    if dtype == "float64":
        return op.add(op.multiply(_standardised(g, x, axes, eps), gamma), beta)
    made = op.nn.layer_norm(x, gamma, beta, axes=axes, epsilon=eps)
    return made if dtype == g.dtype else op.astype(made, g.dtype)


def native_layer_norm(g: Graph, **named: object) -> list[relax.Expr | None]:
    """The same, and the statistics where somebody reads them."""
    return [layer_norm(g, **named), *of_layer(g, **named)]


def rms_norm(
    g: Graph, input: Value, normalized_shape: Sequence[int], weight: Value | None, eps: float | None
) -> relax.Expr:
    """``x / sqrt(mean(x^2) + eps) weight`` over the last axes."""
    axes = list(range(-len(normalized_shape), 0))
    if eps is None:  # of what PyTorch computes halves in
        eps = torch.finfo(torch.promote_types(g.results[0].dtype, torch.float32)).eps
    dtype = g.dtype if weight is None else g.promoted(input, weight)
    x, gamma = g.tensor(input, dtype), g.tensor(_or(g, weight, 1.0, normalized_shape), dtype)
    if dtype == "float64":
        squares = op.mean(op.multiply(x, x), axes, True)
        return op.multiply(op.multiply(x, op.rsqrt(op.add(squares, g.tensor(eps)))), gamma)
    made = op.nn.rms_norm(x, gamma, axes=axes, epsilon=eps)
    return made if dtype == g.dtype else op.astype(made, g.dtype)


def group_norm(
    g: Graph,
    input: Value,
    num_groups: int,
    weight: Value | None,
    bias: Value | None,
    eps: float,
    cudnn_enabled: bool = False,
) -> relax.Expr:
    """Over the channels of a group, along axis 1, and all axes behind."""
    x = g.tensor(input)
    gamma, beta = (
        _or(g, value, number, [x.ty.shape.values[1]])
        for value, number in ((weight, 1.0), (bias, 0.0))
    )
    axes = list(range(2, x.ty.ndim))
    if g.dtype == "float64":
        batch, channels, *others = x.ty.shape.values
        apart = op.reshape(x, [batch, num_groups, int(channels) // num_groups, *others])
        apart = _standardised(g, g.emit(apart), [axis + 1 for axis in (1, *axes)], eps)
        return _scaled(op.reshape(apart, list(x.ty.shape.values)), gamma, beta, x.ty.ndim)
    # Relax has none of bfloat16.
    parts = [g.tensor(t, "float32") if g.dtype == "bfloat16" else t for t in (x, gamma, beta)]
    made = op.nn.group_norm(*parts, num_groups, channel_axis=1, axes=axes, epsilon=eps)
    return g.tensor(g.emit(made), g.dtype)


def native_group_norm(
    g: Graph,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    N: Value,
    C: Value,
    HxW: Value,
    group: int,
    eps: float,
) -> list[relax.Expr | None]:
    """The same, and the statistics where somebody reads them."""
    return [group_norm(g, input, group, weight, bias, eps), *of_groups(g, input, group, eps)]


def instance_norm(
    g: Graph,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> relax.Expr:
    """Over the axes behind each channel, or by statistics that are kept."""
    if not use_input_stats:
        return batch_norm(g, input, weight, bias, running_mean, running_var, momentum, eps)
    if running_mean is not None:
        raise ValueError(
            "instance norm of a module in training mode; call .eval() before exporting it"
        )
    x = g.tensor(input)
    channels = x.ty.shape.values[1]
    gamma, beta = (
        _or(g, value, number, [channels]) for value, number in ((weight, 1.0), (bias, 0.0))
    )
    axes = list(range(2, x.ty.ndim))
    if g.dtype == "float64":
        return _scaled(_standardised(g, x, axes, eps), gamma, beta, x.ty.ndim)
    return op.nn.instance_norm(x, gamma, beta, channel_axis=1, axes=axes, epsilon=eps)


def _along(apply: Callable[[relax.Expr, int], relax.Expr]) -> Callable[..., relax.Expr]:
    """A function of the numbers along an axis; one number without axes is alone along its own."""

    def convert(
        g: Graph, x: Value, dim: int, dtype: object = None, half_to_float: bool = False
    ) -> relax.Expr:
        tensor = g.tensor(x, g.dtype)
        if tensor.ty.ndim:
            return apply(tensor, dim)
        return op.squeeze(g.emit(apply(g.emit(op.expand_dims(tensor, 0)), 0)), [0])

    return convert


softmax, log_softmax = _along(op.nn.softmax), _along(op.nn.log_softmax)


def safe_softmax(g: Graph, x: Value, dim: int, dtype: object = None) -> relax.Expr:
    """Softmax that is 0 along an axis of minus infinity alone."""
    made = g.emit(softmax(g, x, dim))
    return op.where(op.isnan(made), g.tensor(0.0), made)


# ---------------------------------------------------------------------- reductions


def _axes(x: relax.Expr, dim: int | Sequence[int] | None) -> list[int]:
    """Axes that are named; none, or an empty list of them, are all."""
    rank = x.ty.ndim
    named = [dim] if isinstance(dim, int) else list(dim or range(rank))
    return [axis % rank for axis in named] if rank else []


def _reduction(
    apply: Callable[..., relax.Expr], of_nothing: float | None = None
) -> Callable[..., relax.Expr]:
    """``of_nothing`` is what an axis without elements gives, where TVM says something else."""

    def convert(
        g: Graph,
        x: Value,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        dtype: object = None,
    ) -> relax.Expr:
        tensor = g.tensor(x, g.dtype)
        axes, shape = _axes(tensor, dim), shape_of(tensor)
        if of_nothing is not None and any(shape[axis] == 0 for axis in axes):
            return op.full(g.shape, g.tensor(of_nothing, g.dtype), g.dtype)
        made = apply(tensor, axes, keepdim) if axes else tensor
        if of_nothing is None or g.is_taken_away:  # from as few elements
            return made
        if all(isinstance(shape[axis], int) for axis in axes):
            return made
        return op.multiply(made, _share(g, tensor, axes))

    return convert


def _share(g: Graph, tensor: relax.Expr, axes: Sequence[int], less: float = 0) -> relax.Expr:
    """``n / (n - less)`` of the ``n`` elements along axes of open extents: NaN of none, and
    infinite where there are as few as ``less``."""
    sizes, dtype = tensor.ty.shape.values, dtype_of(tensor)
    counts = [size_tensor(g.builder, sizes[axis], dtype) for axis in axes]
    count = reduce(lambda a, b: g.emit(op.multiply(a, b)), counts)
    fewer = op.maximum(op.subtract(count, g.tensor(less, dtype)), g.tensor(0.0, dtype))
    return g.emit(op.divide(count, g.emit(fewer) if less else count))


def _greatest_or_least(apply: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
    """Of booleans, whether any or all are true: TVM has no order of these."""

    def convert(
        g: Graph, x: Value, dim: int | Sequence[int] | None = None, keepdim: bool = False
    ) -> relax.Expr:
        return (_truth if g.dtype == "bool" else _reduction)(apply)(g, x, dim, keepdim)

    return convert


def _truth(apply: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
    """Whether any or all elements are not 0; of uint8 as 0 and 1."""

    def convert(
        g: Graph, x: Value, dim: int | Sequence[int] | None = None, keepdim: bool = False
    ) -> relax.Expr:
        numbers = g.tensor(g.tensor(x, "bool"), "int32")
        if numbers.ty.ndim:
            numbers = g.emit(apply(numbers, _axes(numbers, dim), keepdim))
        # Not "other than 0": the greatest of nothing is the least number, and none of it is true.
        return g.tensor(g.emit(op.greater(numbers, g.tensor(0, "int32"))), g.dtype)

    return convert


def _spread(root: bool, with_mean: bool) -> Callable[..., object]:
    """The variance or standard deviation: a sum of squares over the number less a correction."""

    def convert(
        g: Graph,
        x: Value,
        dim: Sequence[int] | None = None,
        correction: float | None = None,
        keepdim: bool = False,
        unbiased: bool = True,
    ) -> object:
        tensor = g.tensor(x)
        axes, less = _axes(tensor, dim), unbiased if correction is None else correction
        count = 1
        for axis in axes:
            count = count * shape_of(tensor)[axis]
        if isinstance(count, int) and not count:
            nothing = g.tensor(float("nan"), g.dtype)
            return [op.full(g.extents(made.shape), nothing, g.dtype) for made in g.results]
        mean, variance = _statistics(g, tensor, axes, keepdim)
        if not isinstance(count, int):
            variance = op.multiply(variance, _share(g, tensor, axes, float(less)))
        elif less:
            # Divided by 0: infinite, or NaN where nothing varies.
            share = count / (count - less) if count > less else float("inf")
            variance = op.multiply(variance, g.tensor(share, dtype_of(tensor)))
        result = op.sqrt(variance) if root else variance
        if not with_mean:
            return result
        if not isinstance(count, int) and not g.is_taken_away:
            mean = g.emit(op.multiply(mean, _share(g, tensor, axes)))
        return [result, mean if keepdim else op.squeeze(mean, axes)]

    return convert


def cumulative_sum(g: Graph, x: Value, dim: int, dtype: object = None) -> relax.Expr:
    """Sums of all elements up to each along an axis."""
    tensor = g.tensor(x, g.dtype)
    return op.cumsum(tensor, dim, dtype=g.dtype) if tensor.ty.ndim else tensor


def cumulative_product(g: Graph, x: Value, dim: int, dtype: object = None) -> relax.Expr:
    """Products of the same."""
    tensor = g.tensor(x, g.dtype)
    return op.cumprod(tensor, dim, dtype=g.dtype) if tensor.ty.ndim else tensor


def norm(
    g: Graph,
    x: Value,
    ord: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: object = None,
) -> relax.Expr:
    """A norm of vectors: the sum of magnitudes, or the root of the sum of squares."""
    tensor = g.tensor(x, g.dtype)
    axes = _axes(tensor, dim)
    if ord == 2:
        return op.sqrt(op.sum(op.multiply(tensor, tensor), axes, keepdim))
    if ord == 1:
        return op.sum(op.abs(tensor), axes, keepdim)
    sizes = op.abs(tensor)
    if dtype_of(tensor) == DOUBLE:  # of whose magnitude TVM does not know that it is none
        sizes = g.emit(op.where(op.isnan(tensor), tensor, sizes))
    if ord in (float("inf"), float("-inf")):
        return (greatest if ord > 0 else least)(sizes, axes, keepdim)
    if ord == 0:
        counted = op.astype(unequal(tensor, g.tensor(0.0, dtype_of(tensor))), g.dtype)
        return op.sum(counted, axes, keepdim)
    return _root(g, op.sum(op.power(sizes, g.tensor(float(ord))), axes, keepdim), ord)


def _root(g: Graph, sums: relax.Expr, order: float) -> relax.Expr:
    return op.power(sums, g.tensor(1 / order))


def distances(
    g: Graph, x1: Value, x2: Value, p: float, compute_mode: int | None = None
) -> relax.Expr:
    """Between each row of [..., P, M] and each of [..., R, M]: [..., P, R]."""
    one, other = g.tensor(x1), g.tensor(x2)
    rank = max(one.ty.ndim, other.ty.ndim)  # one may have fewer axes before the rows
    apart = g.emit(op.subtract(op.expand_dims(one, -2), op.expand_dims(other, -3)))
    if p == 0:  # how many numbers differ
        zero = g.tensor(0.0, g.dtype)
        return op.sum(op.astype(g.emit(op.not_equal(apart, zero)), g.dtype), [rank])
    if p == 2:
        return op.sqrt(op.sum(op.multiply(apart, apart), [rank]))
    sizes = op.abs(apart)
    if p == float("inf"):
        return op.max(sizes, [rank])
    return (
        op.sum(sizes, [rank])
        if p == 1
        else _root(g, op.sum(op.power(sizes, g.tensor(float(p))), [rank]), p)
    )


NORMALISATION = {
    "batch_norm": batch_norm,
    "_native_batch_norm_legit_no_training": native_batch_norm,
    "native_batch_norm": native_batch_norm,
    "_native_batch_norm_legit.no_stats": no_stats,
    "layer_norm": layer_norm,
    "native_layer_norm": native_layer_norm,
    "rms_norm": rms_norm,
    "group_norm": group_norm,
    "native_group_norm": native_group_norm,
    "instance_norm": instance_norm,
    "softmax.int": softmax,
    "_softmax": softmax,
    "log_softmax.int": log_softmax,
    "_log_softmax": log_softmax,
    "_safe_softmax": safe_softmax,
    "sum": _reduction(op.sum),
    "mean": _reduction(op.mean, of_nothing=float("nan")),
    "prod": _reduction(op.prod),
    "amax": _greatest_or_least(greatest),
    "amin": _greatest_or_least(least),
    "max.default": _greatest_or_least(greatest),
    "min.default": _greatest_or_least(least),
    "any": _truth(op.max),
    "all": _truth(op.min),
    "var": _spread(root=False, with_mean=False),
    "std": _spread(root=True, with_mean=False),
    "var_mean": _spread(root=False, with_mean=True),
    "cumsum": cumulative_sum,
    "cumprod": cumulative_product,
    "linalg_vector_norm": norm,
    "_cdist_forward": distances,
}
