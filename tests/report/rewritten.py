"""For each operator that canonicalisation writes in others: a call that fits, and one that not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tvm import relax
from tvm.relax import op

from tests.ir.graphs import constant, random

from .modules import IMAGE, floats, integers

Build = Callable[..., relax.Expr]


@dataclass(frozen=True)
class Case:
    """``fit`` of inputs of ``types`` is rewritten, ``unfit`` not; ``found`` is in the reason."""

    fit: Build
    unfit: Build
    types: Sequence[relax.Type]
    found: str
    unfit_types: Sequence[relax.Type] = ()


def _dtype(fit: Build, *shape: int) -> Case:
    """A call that fp64 alone keeps from being rewritten."""
    return Case(fit, fit, [floats(*shape)], "float64[", [floats(*shape, dtype="float64")])


def _symbol(fit: Build, *shape: int) -> Case:
    """A call that a symbolic first extent alone keeps from being rewritten."""
    return Case(fit, fit, [floats(*shape)], "float32[n, ", [floats("n", *shape[1:])])


def _unknown(fit: Build, *shape: int) -> Case:
    """A call that an unknown shape alone keeps from being rewritten."""
    unknown = relax.TensorType(dtype="float32", ndim=len(shape))
    return Case(fit, fit, [floats(*shape)], "float32[?]", [unknown])


def _vector(size: int = 3) -> relax.Expr:
    return constant(random(size))


def _batch_norm(x: relax.Expr, training: bool) -> relax.Expr:
    return op.nn.batch_norm(x, *(_vector() for _ in range(4)), axis=1, training=training)[0]


def _conv1d(x: relax.Expr, layout: str) -> relax.Expr:
    return op.nn.conv1d(x, constant(random(4, 3, 1)), data_layout=layout, out_layout=layout)


def _conv1d_transpose(x: relax.Expr, layout: str) -> relax.Expr:
    weight = constant(random(3, 4, 1))
    return op.nn.conv1d_transpose(x, weight, data_layout=layout, out_layout=layout)


def _pool1d(pool: Build, layout: str, x: relax.Expr) -> relax.Expr:
    return pool(x, 2, layout=layout, out_layout=layout)


def _layouts(build: Build, fit: str, unfit: str, *shape: int) -> Case:
    return Case(partial(build, fit), partial(build, unfit), [floats(*shape)], f"layout {unfit}")


def _attention(q: relax.Expr, window: int | None) -> relax.Expr:
    return op.nn.attention(q, q, q, window_size=window, causal_mask="TopLeft" if window else None)


def _attention_bias(q: relax.Expr, window: int | None) -> relax.Expr:
    causal = "TopLeft" if window else None
    mask = constant(random(1, 2, 4, 4))
    return op.nn.attention(q, q, q, bias=mask, window_size=window, causal_mask=causal)


def _one_hot(i: relax.Expr) -> relax.Expr:
    return op.one_hot(i, relax.prim_value(1.0), relax.prim_value(0.0), 5, -1)


QUERY = [floats(1, 4, 2, 8)]
VOLUME = floats(1, 2, 4, 4, 4)

CASES: dict[str, Case] = {
    "relax.nn.batch_norm": Case(
        lambda x: _batch_norm(x, False),
        lambda x: _batch_norm(x, True),
        [IMAGE],
        "float32[3] constant, training True",
    ),
    "relax.nn.conv1d": Case(
        lambda x: _conv1d(x, "NCW"),
        lambda x: _conv1d(x, "NWC"),
        [floats(1, 3, 3)],
        "data_layout NWC, kernel_layout OIW",
    ),
    "relax.nn.conv1d_transpose": Case(
        lambda x: _conv1d_transpose(x, "NCW"),
        lambda x: _conv1d_transpose(x, "NWC"),
        [floats(1, 3, 3)],
        "data_layout NWC, kernel_layout IOW",
    ),
    "relax.nn.max_pool1d": _layouts(partial(_pool1d, op.nn.max_pool1d), "NCW", "NWC", 1, 4, 4),
    "relax.nn.avg_pool1d": _layouts(partial(_pool1d, op.nn.avg_pool1d), "NCW", "NWC", 1, 4, 4),
    "relax.nn.max_pool3d": _dtype(lambda x: op.nn.max_pool3d(x, (2, 2, 2)), 1, 2, 4, 4, 4),
    "relax.nn.avg_pool3d": Case(
        lambda x: op.nn.avg_pool3d(x, (2, 2, 2)),
        lambda x: op.nn.avg_pool3d(x, (2, 2, 2), layout="NDHWC", out_layout="NDHWC"),
        [VOLUME],
        "layout NDHWC, out_layout NDHWC",
    ),
    "relax.nn.adaptive_avg_pool1d": Case(
        lambda x: op.nn.adaptive_avg_pool1d(x, 3),
        lambda x: op.nn.adaptive_avg_pool1d(x, 2, "NWC"),
        [floats(1, 3, 4)],
        "layout NWC",
    ),
    "relax.nn.adaptive_avg_pool3d": Case(
        lambda x: op.nn.adaptive_avg_pool3d(x, (3, 2, 3)),
        lambda x: op.nn.adaptive_avg_pool3d(x, (2, 2, 2), "NDHWC"),
        [VOLUME],
        "layout NDHWC",
    ),
    "relax.nn.prelu": Case(
        lambda x: op.nn.prelu(x, _vector(), 1),
        lambda x: op.nn.prelu(x, _vector(), 2),
        [IMAGE],
        "float32[1, 3, 6, 6], float32[3] constant, axis 2",
    ),
    "relax.nn.attention": Case(
        lambda q: _attention(q, None), lambda q: _attention(q, 2), QUERY, "window_size 2"
    ),
    "relax.nn.attention_bias": Case(
        lambda q: _attention_bias(q, None), lambda q: _attention_bias(q, 2), QUERY, "window_size 2"
    ),
    "relax.nn.softplus": Case(
        lambda x: op.nn.softplus(x),
        lambda x: op.nn.softplus(x, 2.0),
        [IMAGE],
        "beta 2.0, threshold 20.0",
    ),
    "relax.nn.dropout": Case(
        lambda x: op.nn.dropout(x)[0], lambda x: op.nn.dropout(x), [IMAGE], "float32[1, 3, 6, 6]"
    ),
    "relax.nn.batch_flatten": _unknown(op.nn.batch_flatten, 2, 3, 4),
    "relax.nn.pixel_shuffle": _unknown(lambda x: op.nn.pixel_shuffle(x, 2), 1, 4, 2, 2),
    "relax.variance": _dtype(lambda x: op.variance(x, [1]), 2, 3),
    "relax.std": _dtype(lambda x: op.std(x, [1]), 2, 3),
    "relax.square": _unknown(op.square, 2, 3),
    "relax.isinf": _dtype(op.isinf, 2, 3),
    "relax.isfinite": _unknown(op.isfinite, 2, 3),
    "relax.bitwise_not": Case(
        op.bitwise_not, op.bitwise_not, [integers(3)], "uint16[3]", [integers(3, dtype="uint16")]
    ),
    "relax.tril": _unknown(lambda x: op.tril(x, 0), 3, 3),
    "relax.triu": _unknown(lambda x: op.triu(x, 1), 3, 3),
    "relax.one_hot": Case(
        _one_hot, _one_hot, [integers(3)], "uint8[3], depth 5", [integers(3, dtype="uint8")]
    ),
    "relax.tile": _symbol(lambda x: op.tile(x, [2, 1]), 2, 3),
    "relax.repeat": Case(
        lambda x: op.repeat(x, 2, 0), lambda x: op.repeat(x, 2), [floats(2, 3)], "axis None"
    ),
    "relax.flip": _unknown(lambda x: op.flip(x, 0), 2, 3),
    "relax.split": Case(
        lambda x: op.split(x, 3, 1)[0], lambda x: op.split(x, 3, 1), [IMAGE], "axis 1"
    ),
    "relax.stack": Case(
        lambda x: op.stack([x, x], 1),
        lambda x: op.stack([x, x], 1),
        [floats(2, 3)],
        "float32[?]",
        [relax.TensorType(dtype="float32", ndim=2)],
    ),
}
