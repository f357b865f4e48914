"""Rows by the matrices of their groups, and choices that only look like them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from byoc.canonicalise import canonicalise
from byoc.partition.annotate import annotate
from byoc.partition.merge import merge

from .graphs import constant, random, regions, relax_module
from .interpret import Interpreter, run_with_tvm, without_regions

_W = random(3, 6, 5, seed=9)


def chain(emit, x, g, numbers=(0, 1, 2), rest=0.0, other=None):
    """The choice of what each matrix gives; ``g`` [S, 1] has numbers of groups as floats."""
    group = emit(op.astype(g, "int64"))
    made = relax.const(rest)
    for place, number in enumerate(numbers):
        product = emit(op.matmul(x if place != 1 or other is None else other, constant(_W[place])))
        own = emit(op.equal(group, relax.const(number, "int64")))
        made = op.where(own, product, made)
        if place + 1 < len(numbers):
            made = emit(made)
    return made


def check(build: Callable[..., relax.Expr], found: int) -> None:
    mod = relax_module(build, (7, 6), (7, 1))
    out = merge(annotate(canonicalise(mod)))
    relax.analysis.well_formed(out)
    names = [name for region in regions(out).values() for name in region]
    assert names.count("ext.grouped_matmul") == found, names
    inputs = random(7, 6), np.array([[0.0], [0], [1], [2], [5], [1], [-1]], np.float32)
    want = run_with_tvm(mod, *inputs)
    for got in (Interpreter(out)(*inputs), run_with_tvm(without_regions(out), *inputs)):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("numbers", [(0, 1, 2), (2, 0, 1), (1, 0)])
def test_every_order_of_groups(numbers: tuple[int, ...]) -> None:
    check(lambda emit, x, g: chain(emit, x, g, numbers), 1)


def test_a_chain_of_which_a_part_is_read_elsewhere() -> None:
    """It stays in pieces: which part is wanted nobody says."""

    def build(emit, x, g):
        part = emit(chain(emit, x, g, (0, 1)))
        product = emit(op.matmul(x, constant(_W[2])))
        own = emit(op.equal(emit(op.astype(g, "int64")), relax.const(2, "int64")))
        return op.add(emit(op.where(own, product, part)), part)

    check(build, 0)


@pytest.mark.parametrize(
    "build",
    [
        lambda emit, x, g: chain(emit, x, g, (0, 2, 3)),
        lambda emit, x, g: chain(emit, x, g, (0, 1, 1)),
        lambda emit, x, g: chain(emit, x, g, rest=1.0),
        lambda emit, x, g: chain(emit, x, g, other=emit(op.nn.relu(x))),
    ],
    ids=["a number is missing", "a number comes twice", "another rest", "another x"],
)
def test_choices_that_only_look_like_it(build: Callable[..., relax.Expr]) -> None:
    check(build, 0)
