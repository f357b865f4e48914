"""Normalisations over channels, in the forms of exporters, and transposes that hide functions."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.relax import op

from byoc.canonicalise import apply_rule
from byoc.canonicalise.gelu import SLOPE, gelu_from_pieces
from byoc.canonicalise.layer_norm import layer_norm_from_pieces
from byoc.canonicalise.permute_around_elementwise import permute_around_elementwise
from byoc.canonicalise.rms_norm import rms_norm_from_pieces

from .graphs import constant, operators, random, relax_module
from .rule_check import check

LAYER_NORM = "relax.nn.layer_norm"
IN_CHANNELS = ["relax.permute_dims", LAYER_NORM, "relax.permute_dims"]


def _inverse(emit, x, axis: int, root: str):
    """The mean, what is left of x without it, and the reciprocal of its deviation."""
    mean = emit(op.mean(x, [axis], keepdims=True))
    d = emit(op.subtract(x, mean))
    variance = emit(op.mean(emit(op.multiply(d, d)), [axis], keepdims=True))
    shifted = emit(op.add(variance, constant(1e-5)))
    if root == "rsqrt":
        return mean, d, emit(op.rsqrt(shifted))
    return mean, d, emit(op.divide(constant(1.0), emit(op.sqrt(shifted))))


def _vectors(shape: tuple[int, ...], axis: int):
    extents = [n if i == axis % len(shape) else 1 for i, n in enumerate(shape)]
    return (constant(random(*extents, seed=seed)) for seed in (3, 4))


@pytest.mark.parametrize("shape", [(2, 6, 3), (2, 6, 3, 4), (1, 6, 2, 2, 3)])
@pytest.mark.parametrize("affine", [False, True])
def test_layer_norm_over_channels(shape: tuple[int, ...], affine: bool) -> None:
    def build(emit, x):
        _, d, inverse = _inverse(emit, x, 1, "rsqrt")
        gamma, beta = _vectors(shape, 1)
        y = emit(op.multiply(d, inverse))
        return op.add(emit(op.multiply(gamma, y)), beta) if affine else op.negative(y)

    expected = IN_CHANNELS if affine else [*IN_CHANNELS, "relax.negative"]
    check(build, layer_norm_from_pieces, expected, random(*shape), rtol=1e-4)


@pytest.mark.parametrize(
    "form", ["folded", "subtracted", "negated", "no beta", "no gamma", "later"]
)
@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("root", ["rsqrt", "sqrt"])
def test_layer_norm_with_the_scale_first(form: str, axis: int, root: str) -> None:
    shape = (2, 6, 3, 5)

    def build(emit, x):
        mean, d, inverse = _inverse(emit, x, axis, root)
        gamma, beta = _vectors(shape, axis)
        scale = inverse if form == "no gamma" else emit(op.multiply(inverse, gamma))
        if form == "later":
            return op.add(emit(op.multiply(d, scale)), beta)
        scaled = emit(op.multiply(x, scale))
        if form == "no beta":
            return op.subtract(scaled, emit(op.multiply(mean, scale)))
        if form == "subtracted":
            return op.add(scaled, emit(op.subtract(beta, emit(op.multiply(mean, scale)))))
        if form == "negated":
            less = emit(op.negative(emit(op.multiply(mean, scale))))
        else:
            less = emit(op.multiply(emit(op.negative(mean)), scale))
        return op.add(scaled, emit(op.add(less, beta)))

    expected = IN_CHANNELS if axis == 1 else [LAYER_NORM]
    check(build, layer_norm_from_pieces, expected, random(*shape), rtol=1e-4)


def test_a_gamma_of_pixels_and_another_mean_stay() -> None:
    def of_pixels(emit, x):
        mean, _, inverse = _inverse(emit, x, 1, "rsqrt")
        scale = emit(op.multiply(inverse, constant(random(1, 6, 1, 5, seed=3))))
        return op.subtract(emit(op.multiply(x, scale)), emit(op.multiply(mean, scale)))

    def other_mean(emit, x):
        _, _, inverse = _inverse(emit, x, 1, "rsqrt")
        mean = emit(op.mean(x, [2], keepdims=True))
        return op.subtract(emit(op.multiply(x, inverse)), emit(op.multiply(mean, inverse)))

    for build in (of_pixels, other_mean):
        after = apply_rule(relax_module(build, (2, 6, 3, 5)), layer_norm_from_pieces)
        assert LAYER_NORM not in operators(after)


def test_rms_norm_over_channels() -> None:
    def build(emit, x):
        mean = emit(op.mean(emit(op.multiply(x, x)), [1], keepdims=True))
        y = emit(op.divide(x, emit(op.sqrt(emit(op.add(mean, constant(1e-6)))))))
        return op.multiply(y, constant(random(1, 6, 1, 1, seed=3)))

    expected = ["relax.permute_dims", "relax.nn.rms_norm", "relax.permute_dims"]
    check(build, rms_norm_from_pieces, expected, random(2, 6, 3, 4), rtol=1e-4)


def test_a_gelu_half_in_channels_last() -> None:
    def build(emit, x):
        turned = emit(op.permute_dims(x, [0, 2, 3, 1]))
        cube = emit(op.multiply(constant(0.044715), emit(op.power(turned, constant(3.0)))))
        inner = emit(op.add(x, emit(op.permute_dims(cube, [0, 3, 1, 2]))))
        gate = emit(op.tanh(emit(op.multiply(constant(SLOPE), inner))))
        half = emit(op.multiply(constant(0.5), x))
        return op.multiply(half, emit(op.add(constant(1.0), gate)))

    module = relax_module(build, (1, 4, 3, 5))
    after = apply_rule(apply_rule(module, permute_around_elementwise), gelu_from_pieces)
    assert operators(after) == ["relax.nn.gelu_tanh"]


def test_transposes_that_undo_each_other() -> None:
    def build(emit, x):
        turned = emit(op.permute_dims(x, [0, 2, 3, 1]))
        both = emit(op.multiply(emit(op.exp(turned)), emit(op.clip(turned, 0.0, 1.0))))
        return op.permute_dims(
            emit(op.add(both, constant(np.ones((1, 1), "float32")))), [0, 3, 1, 2]
        )

    expected = ["relax.exp", "relax.clip", "relax.multiply", "relax.add"]
    check(build, permute_around_elementwise, expected, random(2, 4, 3, 5))


@pytest.mark.parametrize("kind", ["other order", "read twice", "a vector"])
def test_transposes_that_are_needed_stay(kind: str) -> None:
    def build(emit, x):
        turned = emit(op.permute_dims(x, [0, 2, 3, 1]))
        if kind == "a vector":
            y = emit(op.add(turned, constant(random(4, seed=3))))
        else:
            y = emit(op.exp(turned))
        back = emit(op.permute_dims(y, [0, 2, 3, 1] if kind == "other order" else [0, 3, 1, 2]))
        return op.add(emit(op.sum(y)), back) if kind == "read twice" else back

    after = apply_rule(relax_module(build, (1, 4, 4, 4)), permute_around_elementwise)
    assert operators(after).count("relax.permute_dims") == 2
