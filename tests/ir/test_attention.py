"""Attention in the forms in which it is written, and forms that only look like it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from byoc.canonicalise import canonicalise
from byoc.compiler.partition import partition_with_report
from byoc.partition.annotate import annotate
from byoc.partition.merge import merge
from byoc.partition.prune import nodes_of
from codegen_cc.node import Node

from .graphs import constant, random, regions, relax_module
from .interpret import Interpreter, run_with_tvm, without_regions

pytestmark = pytest.mark.usefixtures("everything_is_supported")


def check(
    build: Callable[..., relax.Expr],
    *inputs: np.ndarray,
    found: bool = True,
    bodies: bool = False,
) -> Node | None:
    """Look for one attention; compare values of descriptors (and of bodies) with TVM's."""
    mod = relax_module(build, *(array.shape for array in inputs))
    out = merge(annotate(canonicalise(mod)))
    relax.analysis.well_formed(out)
    names = [name for region in regions(out).values() for name in region]
    assert names.count("ext.attention") == int(found), names
    want = run_with_tvm(mod, *inputs)
    results = [Interpreter(out)(*inputs)]
    if bodies:
        results.append(run_with_tvm(without_regions(out), *inputs))
    for got in results:
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    return attention_of(out) if found else None


def attention_of(out: tvm.IRModule) -> Node:
    functions = [f for f in out.functions.values() if f.attrs and "Codegen" in f.attrs]
    return next(n for f in functions for n in nodes_of(f) if n.op == "attention")


def attend(emit, q, kt, v, scores=lambda x: x):
    """Softmax of the scores of a query and a transposed key, times a value."""
    weights = emit(op.nn.softmax(scores(emit(op.matmul(q, kt))), -1))
    return emit(op.matmul(weights, v))


QUERY, KEY, VALUE = random(2, 3, 4, 8), random(2, 3, 5, 8, seed=1), random(2, 3, 5, 6, seed=2)


def turned(emit, k):
    return emit(op.permute_dims(k, [0, 1, 3, 2]))


def test_plain() -> None:
    node = check(lambda emit, q, k, v: attend(emit, q, turned(emit, k), v), QUERY, KEY, VALUE)
    assert [operand.role for operand in node.operands] == ["query", "key", "value"]
    assert [operand.shape for operand in node.operands] == [QUERY.shape, KEY.shape, VALUE.shape]
    assert (node.shape, node.attrs) == ((2, 3, 4, 6), {"scale": 1.0, "guarded": False})


@pytest.mark.parametrize("operator", [op.multiply, op.divide])
def test_scale_of_scores(operator: Callable[..., relax.Expr]) -> None:
    def build(emit, q, k, v):
        return attend(emit, q, turned(emit, k), v, lambda s: emit(operator(s, constant(2.5))))

    node = check(build, QUERY, KEY, VALUE)
    assert node.attrs["scale"] == pytest.approx(2.5 if operator is op.multiply else 0.4)


def test_scale_of_query_and_of_key() -> None:
    def build(emit, q, k, v):
        q = emit(op.multiply(q, constant(0.5)))
        kt = emit(op.divide(turned(emit, k), constant(2.0)))
        return attend(emit, q, kt, v)

    assert check(build, QUERY, KEY, VALUE).attrs["scale"] == pytest.approx(0.25)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 1, 1, 5), (4, 5), (5,), (1, 1)])
def test_mask(shape: tuple[int, ...]) -> None:
    def build(emit, q, k, v, m):
        def scores(s):
            return emit(op.add(m, emit(op.multiply(s, constant(0.3)))))

        return attend(emit, q, turned(emit, k), v, scores)

    node = check(build, QUERY, KEY, VALUE, random(*shape, seed=3))
    assert node.operand("mask").shape == (1,) * (4 - len(shape)) + shape


def test_causal_mask_of_constants() -> None:
    mask = np.where(np.tri(4, 5, 1, dtype=bool), 0.0, np.finfo(np.float32).min)

    def build(emit, q, k, v):
        return attend(emit, q, turned(emit, k), v, lambda s: emit(op.add(s, constant(mask))))

    assert check(build, QUERY, KEY, VALUE).operand("mask").constant


def test_mask_of_minus_infinity() -> None:
    mask = np.where(np.tri(4, 5, 1, dtype=bool), 0.0, -np.inf)

    def build(emit, q, k, v):
        return attend(emit, q, turned(emit, k), v, lambda s: emit(op.add(s, constant(mask))))

    check(build, QUERY, KEY, VALUE)


def test_two_masks() -> None:
    def build(emit, q, k, v, a, b):
        def scores(s):
            return emit(op.add(emit(op.add(s, a)), b))

        return attend(emit, q, turned(emit, k), v, scores)

    masks = random(1, 3, 4, 5, seed=3), random(2, 1, 1, 5, seed=4)
    assert check(build, QUERY, KEY, VALUE, *masks, bodies=True).operand("mask").shape == (
        2,
        3,
        4,
        5,
    )


def guarded(emit, scores, other: float = 0.0):
    """Softmax with another number for NaN, as PyTorch writes it."""
    weights = emit(op.nn.softmax(scores, -1))
    return emit(op.where(emit(op.isnan(weights)), constant(other), weights))


def guarded_keys(emit, scores, other: float = 0.0, bound: float = -np.inf):
    """Softmax with another number for rows without a key, as PyTorch computes it."""
    weights = emit(op.nn.softmax(scores, -1))
    hidden = emit(op.astype(emit(op.equal(scores, constant(bound))), "float32"))
    hidden = emit(op.greater(emit(op.min(hidden, -1, keepdims=True)), constant(0.0)))
    return emit(op.where(hidden, constant(other), weights))


#: Adds to scores: the second row of queries has no key.
ROW_WITHOUT_KEY = np.where(np.arange(4)[:, None] == 1, -np.inf, np.zeros((4, 5)))


@pytest.mark.parametrize(("guard", "number"), [(guarded, 1), (guarded_keys, 2)])
@pytest.mark.parametrize("shape", [(4, 5), (1, 1, 4, 5), (2, 3, 4, 5)])
def test_guarded_softmax(
    shape: tuple[int, ...], guard: Callable[..., relax.Expr], number: int
) -> None:
    mask = np.broadcast_to(ROW_WITHOUT_KEY, shape)

    def build(emit, q, k, v):
        scores = emit(op.multiply(emit(op.matmul(q, turned(emit, k))), constant(0.3)))
        weights = guard(emit, emit(op.add(scores, constant(mask))))
        return emit(op.matmul(weights, v))

    node = check(build, QUERY, KEY, VALUE, bodies=True)
    assert node.attrs == {"scale": pytest.approx(0.3), "guarded": number}


def test_guarded_softmax_of_rank_three() -> None:
    def build(emit, q, k, v):
        scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 2, 1]))))
        return emit(op.matmul(guarded(emit, scores), v))

    assert check(build, QUERY[0], KEY[0], VALUE[0]).attrs["guarded"]


def windows(wide: tuple[int, ...], mask: relax.Expr | None) -> Callable[..., relax.Expr]:
    """Scores plus a bias, and in the shape ``wide`` plus a mask, as Swin Transformers write it."""

    def build(emit, q, k, v, *masks):
        def scores(s):
            narrow = emit(op.add(s, constant(random(1, 3, 4, 5, seed=3))))
            added = emit(op.add(emit(op.reshape(narrow, wide)), masks[0] if masks else mask))
            return emit(op.reshape(added, s.ty.shape))

        return attend(emit, q, turned(emit, k), v, scores)

    return build


#: Four windows of two images.
WINDOWS = random(8, 3, 4, 8), random(8, 3, 5, 8, seed=1), random(8, 3, 5, 6, seed=2)


@pytest.mark.parametrize(
    ("wide", "shape"),
    [
        ((2, 4, 3, 4, 5), (1, 4, 1, 4, 5)),
        ((2, 4, 3, 4, 5), (2, 1, 1, 1, 5)),
        ((2, 4, 3, 4, 5), (4, 3, 1, 1)),
        ((8, 12, 5), (12, 5)),
    ],
    ids=str,
)
def test_mask_of_shifted_windows(wide: tuple[int, ...], shape: tuple[int, ...]) -> None:
    node = check(windows(wide, constant(random(*shape, seed=4))), *WINDOWS, bodies=True)
    mask = node.operand("mask")
    assert mask.constant and mask.shape == (1 if shape == (12, 5) else 8, 3, 4, 5)


def test_mask_of_windows_that_is_the_same_for_all() -> None:
    node = check(windows((2, 4, 3, 4, 5), constant(np.full((1, 4, 1, 4, 5), -2.0))), *WINDOWS)
    assert node.operand("mask").shape == (1, 3, 4, 5)


def test_mask_that_is_added_in_another_shape() -> None:
    def build(emit, q, k, v):
        def scores(s):
            wide = emit(op.reshape(s, (2, 4, 3, 5, 4)))
            added = emit(op.add(wide, constant(random(1, 4, 1, 5, 4, seed=4))))
            return emit(op.reshape(added, (8, 3, 4, 5)))

        return attend(emit, q, turned(emit, k), v, scores)

    assert check(build, *WINDOWS).operand("mask").shape == (8, 1, 4, 5)


def test_heads_turned_with_the_key() -> None:
    def build(emit, q, k, v):
        q, v = (emit(op.permute_dims(x, [0, 2, 1, 3])) for x in (q, v))
        return attend(emit, q, emit(op.permute_dims(k, [0, 2, 3, 1])), v)

    arrays = (np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (QUERY, KEY, VALUE))
    check(build, *arrays)


def test_key_that_arrives_turned() -> None:
    def build(emit, q, kt, v):
        return attend(emit, q, kt, v)

    kt = np.ascontiguousarray(KEY.swapaxes(2, 3))
    assert check(build, QUERY, kt, VALUE).operand("key").shape == KEY.shape


@pytest.mark.parametrize("lead", [(), (6,), (2, 2, 3)])
def test_other_ranks(lead: tuple[int, ...]) -> None:
    def build(emit, q, k, v):
        rank = len(lead)
        kt = emit(op.permute_dims(k, [*range(rank), rank + 1, rank]))
        return attend(emit, q, kt, v)

    arrays = (random(*lead, 4, 8), random(*lead, 5, 8, seed=1), random(*lead, 5, 6, seed=2))
    assert len(check(build, *arrays, bodies=True).shape) == 4


def test_operator() -> None:
    def build(emit, q, k, v):
        return emit(op.nn.attention(q, k, v))

    arrays = (random(2, 4, 3, 8), random(2, 5, 3, 8, seed=1), random(2, 5, 3, 6, seed=2))
    assert check(build, *arrays).attrs["scale"] == pytest.approx(8**-0.5)


@pytest.mark.parametrize("corner", ["TopLeft", "BottomRight"])
def test_operator_with_scale_bias_and_causal_mask(corner: str) -> None:
    def build(emit, q, k, v, bias):
        return emit(op.nn.attention(q, k, v, bias, scale=0.7, causal_mask=corner))

    arrays = (random(2, 4, 3, 8), random(2, 5, 3, 8, seed=1), random(2, 5, 3, 6, seed=2))
    check(build, *arrays, random(2, 3, 4, 5, seed=3), bodies=True)


# ---------------------------------------------------------------------- no attention


def test_computed_mask_of_windows_is_none() -> None:
    check(windows((2, 4, 3, 4, 5), None), *WINDOWS, random(1, 4, 1, 4, 5, seed=4), found=False)


def test_softmax_of_another_axis_is_none() -> None:
    def build(emit, q, k, v):
        weights = emit(op.nn.softmax(emit(op.matmul(q, turned(emit, k))), 2))
        return emit(op.matmul(weights, v))

    check(build, QUERY, KEY, VALUE, found=False)


def test_scores_that_are_read_elsewhere_are_none() -> None:
    def build(emit, q, k, v):
        scores = emit(op.matmul(q, turned(emit, k)))
        result = emit(op.matmul(emit(op.nn.softmax(scores, -1)), v))
        return emit(op.add(emit(op.sum(result)), emit(op.sum(scores))))

    check(build, QUERY, KEY, VALUE, found=False)


@pytest.mark.slow
def test_guards_that_are_read_elsewhere_or_give_another_number_are_none() -> None:
    def other(emit, q, k, v):
        scores = emit(op.matmul(q, turned(emit, k)))
        return emit(op.matmul(guarded(emit, scores, other=1.0), v))

    def read(emit, q, k, v):
        weights = guarded(emit, emit(op.matmul(q, turned(emit, k))))
        return emit(op.add(emit(op.sum(emit(op.matmul(weights, v)))), emit(op.sum(weights))))

    def hidden(emit, q, k, v):
        weights = emit(op.nn.softmax(emit(op.matmul(q, turned(emit, k))), -1))
        nan = emit(op.isnan(weights))
        result = emit(op.matmul(emit(op.where(nan, constant(0.0), weights)), v))
        count = emit(op.sum(emit(op.astype(nan, "float32"))))
        return emit(op.add(emit(op.sum(result)), count))

    def masked(emit, q, kt, v, guard=guarded_keys):
        scores = emit(op.add(emit(op.matmul(q, turned(emit, kt))), constant(ROW_WITHOUT_KEY)))
        return scores, emit(op.matmul(guard(emit, scores), v))

    def scores_read(emit, q, k, v):
        scores, result = masked(emit, q, k, v)
        return emit(op.add(emit(op.sum(result)), emit(op.max(scores))))

    def bound(emit, q, k, v):
        return masked(emit, q, k, v, partial(guarded_keys, bound=-1.0))[1]

    for build in (other, read, hidden, scores_read, bound):
        check(build, QUERY, KEY, VALUE, found=False)


def test_heads_that_broadcast_are_none() -> None:
    def build(emit, q, k, v):
        return attend(emit, q, turned(emit, k), v)

    check(build, QUERY, random(2, 1, 5, 8), random(2, 1, 5, 6), found=False)


def test_mask_that_widens_is_none() -> None:
    def build(emit, q, k, v, m):
        return attend(emit, q, turned(emit, k), v, lambda s: emit(op.add(s, m)))

    arrays = random(2, 3, 1, 8), KEY, VALUE, random(4, 5)
    check(build, *arrays, found=False)


def test_chosen_scores_are_none() -> None:
    """``where`` drops NaN from masked scores, an addition would not."""
    seen = relax.const(np.tri(4, 5, 1, dtype=bool), "bool")

    def build(emit, q, k, v):
        def scores(s):
            return emit(op.where(seen, s, constant(-1e4)))

        return attend(emit, q, turned(emit, k), v, scores)

    check(build, QUERY, KEY, VALUE, found=False)


@pytest.mark.parametrize("rank", [3, 4])
def test_constant_key_is_packed_as_the_right_side_of_a_product(rank: int) -> None:
    """As of learned queries: no operator is left that only turns a constant."""

    query, key, value = (x if rank == 4 else x[0] for x in (QUERY, KEY, VALUE))

    def build(emit, q, v):
        order = [*range(rank - 2), rank - 1, rank - 2]
        return attend(emit, q, emit(op.permute_dims(constant(key), order)), v)

    check(build, query, value, found=False)
    mod = relax_module(build, query.shape, value.shape)
    out, report = partition_with_report(mod, min_bytes=0)
    assert report.left == ()
    assert regions(out) == {"ext_main_0": ["ext.matmul", "ext.softmax", "ext.matmul"]}
