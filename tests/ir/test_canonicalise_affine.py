"""Batch norm, scales and shifts: folded into weights, or joined."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from byoc.canonicalise import apply_rule
from byoc.canonicalise.batch_norm import decompose_batch_norm
from byoc.canonicalise.fold_affine import fold_affine, merge_affine
from byoc.canonicalise.repeated_places import repeated_activations, repeated_steps

from .graphs import constant, operators, random, relax_module
from .rule_check import check


def _batch_norm(emit, x, channels: int):
    parameters = [constant(np.abs(random(channels, seed=i)) + 0.5) for i in range(4)]
    pair = emit(op.nn.batch_norm(x, *parameters, axis=1, epsilon=1e-3, training=False))
    return emit(relax.TupleGetItem(pair, 0))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_goes_into_a_convolution(bias: bool, groups: int) -> None:
    def build(emit, x):
        y = emit(op.nn.conv2d(x, constant(random(6, 4 // groups, 3, 3)), groups=groups))
        if bias:
            y = emit(op.add(y, constant(random(1, 6, 1, 1, seed=9))))
        return _batch_norm(emit, y, 6)

    expected = ["relax.nn.conv2d", "relax.add"]
    check(build, decompose_batch_norm, expected, random(1, 4, 6, 5), rtol=1e-4)


def test_batch_norm_goes_into_a_convolution_of_volumes() -> None:
    def build(emit, x):
        y = emit(op.nn.conv3d(x, constant(random(6, 4, 3, 1, 2))))
        y = emit(op.add(y, constant(random(1, 6, 1, 1, 1, seed=9))))
        return _batch_norm(emit, y, 6)

    expected = ["relax.nn.conv3d", "relax.add"]
    check(build, decompose_batch_norm, expected, random(1, 4, 5, 3, 4), rtol=1e-4)


def test_batch_norm_elsewhere_is_a_scale_and_a_shift() -> None:
    def build(emit, x):
        return _batch_norm(emit, x, 4)

    check(build, decompose_batch_norm, ["relax.multiply", "relax.add"], random(2, 4, 3, 3))


def test_batch_norm_after_a_shared_convolution_leaves_it() -> None:
    def build(emit, x):
        y = emit(op.nn.conv2d(x, constant(random(4, 4, 1, 1))))
        return emit(op.subtract(_batch_norm(emit, y, 4), y))

    expected = ["relax.nn.conv2d", "relax.multiply", "relax.add", "relax.subtract"]
    check(build, decompose_batch_norm, expected, random(1, 4, 3, 3), rtol=1e-4)


def _affine_chain(emit, y, channels: tuple[int, ...]):
    y = emit(op.multiply(constant(random(*channels, seed=1)), y))
    y = emit(op.add(y, constant(0.25)))
    y = emit(op.divide(y, constant(np.abs(random(*channels, seed=2)) + 1)))
    y = emit(op.subtract(constant(random(*channels, seed=3)), y))
    return emit(op.nn.relu(y))


def test_affine_goes_into_a_convolution() -> None:
    def build(emit, x):
        y = emit(op.nn.conv2d(x, constant(random(5, 3, 3, 3)), padding=1))
        return _affine_chain(emit, y, (1, 5, 1, 1))

    expected = ["relax.nn.conv2d", "relax.add", "relax.nn.relu"]
    check(build, fold_affine, expected, random(1, 3, 4, 4), rtol=1e-4)


def test_affine_goes_into_a_matmul() -> None:
    def build(emit, x):
        y = emit(op.matmul(x, constant(random(6, 5))))
        return _affine_chain(emit, y, (5,))

    check(
        build,
        fold_affine,
        ["relax.matmul", "relax.add", "relax.nn.relu"],
        random(2, 3, 6),
        rtol=1e-4,
    )


@pytest.mark.parametrize("case", ["pixels", "variable weight", "infinite", "shared"])
def test_affine_that_must_stay(case: str) -> None:
    def build(emit, x, w):
        weight = w if case == "variable weight" else constant(random(5, 3, 1, 1))
        y = emit(op.nn.conv2d(x, weight))
        factor = random(1, 1, 4, 4) if case == "pixels" else np.full((1, 5, 1, 1), 2.0)
        factor = np.full((1, 5, 1, 1), np.inf) if case == "infinite" else factor
        z = emit(op.multiply(y, constant(factor)))
        return emit(op.add(z, y)) if case == "shared" else z

    after = apply_rule(relax_module(build, (1, 3, 4, 4), (5, 3, 1, 1)), fold_affine)
    assert operators(after)[:2] == ["relax.nn.conv2d", "relax.multiply"]


def test_chains_of_affine_steps_join() -> None:
    def build(emit, x):
        y = emit(op.multiply(x, constant(random(1, 4, 1, 1, seed=1))))
        y = emit(op.add(y, constant(random(4, 1, 1, seed=2))))
        y = emit(op.multiply(y, constant(random(1, 4, 1, 1, seed=3))))
        return emit(op.add(y, constant(1.5)))

    expected = ["relax.multiply", "relax.add"]
    check(build, merge_affine, expected, random(1, 4, 3, 3), rtol=1e-4)


def test_joining_keeps_hard_swish() -> None:
    def build(emit, x):
        y = emit(op.clip(emit(op.add(x, constant(3.0))), 0, 6))
        y = emit(op.divide(emit(op.multiply(x, y)), constant(6.0)))
        return emit(op.add(emit(op.multiply(y, constant(2.0))), constant(1.0)))

    after = apply_rule(relax_module(build, (1, 8)), merge_affine)
    assert operators(after)[3] == "relax.divide"


def test_equal_steps_on_one_value_are_computed_once() -> None:
    """As of two classifiers with a batch norm each; other constants, and values, stay apart."""

    def build(emit, x):
        def step(source, seed: int):
            return emit(op.multiply(source, constant(random(1, 8, seed=seed))))

        parts = [step(x, 1), step(x, 1), step(x, 2), step(emit(op.nn.relu(x)), 1)]
        parts = [emit(op.matmul(p, constant(random(8, 8, seed=i)))) for i, p in enumerate(parts)]
        return emit(op.concat(parts, axis=0))

    once = ["relax.multiply", "relax.multiply", "relax.nn.relu", "relax.multiply"]
    expected = [*once, *["relax.matmul"] * 4, "relax.concat"]
    check(build, repeated_steps, expected, random(2, 8))


def test_equal_activations_that_an_operand_ends_in_are_computed_once() -> None:
    """As of two branches that begin with an activation each."""

    def build(emit, x):
        y = emit(op.multiply(x, constant(random(1, 8, seed=1))))
        parts = [emit(op.nn.relu(y)) for _ in range(2)]
        parts = [emit(op.matmul(p, constant(random(8, 8, seed=i)))) for i, p in enumerate(parts)]
        return emit(op.concat(parts, axis=0))

    expected = ["relax.multiply", "relax.nn.relu", *["relax.matmul"] * 2, "relax.concat"]
    check(build, repeated_activations, expected, random(2, 8))


def test_equal_hard_swishes_are_computed_once() -> None:
    def build(emit, x):
        y = emit(op.matmul(x, constant(random(8, 8, seed=1))))
        raised = emit(op.add(y, constant(3.0)))  # once already
        parts = []
        for seed in range(2):
            both = emit(op.multiply(y, emit(op.clip(raised, 0, 6))))
            parts.append(emit(op.matmul(both, constant(random(8, 8, seed=seed)))))
        return emit(op.concat(parts, axis=0))

    once = ["relax.matmul", "relax.add", "relax.clip", "relax.multiply"]
    check(build, repeated_activations, [*once, *["relax.matmul"] * 2, "relax.concat"], random(2, 8))


def test_equal_activations_stay_apart_where_others_read_their_operand() -> None:
    """Kernels that read it take them along; what is stored is wanted without them as well."""

    def build(emit, x):
        y = emit(op.multiply(x, constant(random(1, 8, seed=1))))
        parts = [emit(op.nn.relu(y)), emit(op.nn.relu(y)), y]
        parts = [emit(op.matmul(p, constant(random(8, 8, seed=i)))) for i, p in enumerate(parts)]
        return emit(op.concat(parts, axis=0))

    expected = ["relax.multiply", *["relax.nn.relu"] * 2, *["relax.matmul"] * 3, "relax.concat"]
    check(build, repeated_activations, expected, random(2, 8))


def test_activations_of_an_input_stay_apart() -> None:
    def build(emit, x):
        parts = [emit(op.nn.relu(x)) for _ in range(2)]
        parts = [emit(op.matmul(p, constant(random(8, 8, seed=i)))) for i, p in enumerate(parts)]
        return emit(op.concat(parts, axis=0))

    expected = [*["relax.nn.relu"] * 2, *["relax.matmul"] * 2, "relax.concat"]
    check(build, repeated_activations, expected, random(2, 8))
