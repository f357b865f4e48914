"""Rotary embeddings in the forms in which they are written, and forms that only look like them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from tvm import relax
from tvm.relax import op

import byoc
from byoc.canonicalise import canonicalise
from byoc.partition.annotate import annotate
from byoc.partition.merge import merge
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import random, regions, relax_module
from .interpret import Interpreter, run_with_tvm, without_regions

_WHOLE = ((2, 3, 5, 8), (1, 1, 5, 8), (1, 1, 5, 8))
_HALVES = ((2, 3, 5, 8), (2, 1, 5, 4), (2, 1, 5, 4))


def check(
    build: Callable[..., relax.Expr], shapes: tuple[tuple[int, ...], ...], found: int = 1
) -> None:
    """Look for rotary embeddings; compare values of descriptors and of bodies with TVM's."""
    mod = relax_module(build, *shapes)
    out = merge(annotate(canonicalise(mod)))
    relax.analysis.well_formed(out)
    names = [name for region in regions(out).values() for name in region]
    assert names.count("ext.rotary") == found, names
    inputs = [random(*shape, seed=i) for i, shape in enumerate(shapes)]
    want = run_with_tvm(mod, *inputs)
    for got in (Interpreter(out)(*inputs), run_with_tvm(without_regions(out), *inputs)):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def part(x: relax.Expr, first: int, last: int) -> relax.Expr:
    return op.strided_slice(x, [-1], [first], [last])


def whole_rows(emit, x, c, s, flip: bool = False, split: int = 4):
    first, second = emit(part(x, 0, split)), emit(part(x, split, 8))
    halves = (emit(op.negative(second)), first)
    turned = emit(op.concat(halves[::-1] if flip else halves, axis=-1))
    return emit(op.multiply(x, c)), emit(op.multiply(turned, s))


@pytest.mark.parametrize("order", [1, -1])
def test_of_whole_rows(order: int) -> None:
    def build(emit, x, c, s):
        return op.add(*whole_rows(emit, x, c, s)[::order])

    check(build, _WHOLE)


def test_factors_in_the_other_order() -> None:
    def build(emit, x, c, s):
        turned = emit(op.concat((emit(op.negative(emit(part(x, 4, 8)))), emit(part(x, 0, 4))), -1))
        return op.add(emit(op.multiply(c, x)), emit(op.multiply(s, turned)))

    check(build, _WHOLE)


def halves(emit, x, c, s, sign=op.subtract, other=op.add):
    first, second = emit(part(x, 0, 4)), emit(part(x, 4, 8))
    real = sign(emit(op.multiply(first, c)), emit(op.multiply(second, s)))
    imaginary = other(emit(op.multiply(first, s)), emit(op.multiply(second, c)))
    return op.concat((emit(real), emit(imaginary)), axis=-1)


def test_of_halves() -> None:
    check(halves, _HALVES)


@pytest.mark.slow
def test_turned_rows_in_memory_and_a_half_that_others_read() -> None:
    def build(emit, x, c, s):
        turned = emit(op.permute_dims(x, [0, 2, 1, 3]))
        return op.add(
            emit(halves(emit, turned, c, s)), emit(op.tile(emit(part(turned, 0, 4)), [2]))
        )

    check(build, ((2, 5, 3, 8), *_HALVES[1:]))


@pytest.mark.parametrize(
    "build",
    [
        lambda emit, x, c, s: op.add(*whole_rows(emit, x, c, s, flip=True)),
        lambda emit, x, c, s: op.add(*whole_rows(emit, x, c, s, split=3)),
        lambda emit, x, c, s: op.subtract(*whole_rows(emit, x, c, s)),
    ],
    ids=["the other way round", "no halves", "a difference"],
)
def test_whole_rows_that_only_look_like_it(build: Callable[..., relax.Expr]) -> None:
    check(build, _WHOLE, found=0)


@pytest.mark.parametrize(
    "build",
    [
        lambda emit, x, c, s: halves(emit, x, c, s, op.add, op.subtract),
        lambda emit, x, c, s: halves(emit, x, c, s, op.subtract, op.subtract),
    ],
    ids=["turned back", "no turn"],
)
def test_halves_that_only_look_like_it(build: Callable[..., relax.Expr]) -> None:
    check(build, _HALVES, found=0)


def test_a_step_that_others_read() -> None:
    def build(emit, x, c, s):
        straight, turned = whole_rows(emit, x, c, s)
        return op.multiply(emit(op.add(straight, turned)), turned)

    check(build, _WHOLE, found=0)


def _standard(width: int, flat: bool, half: int) -> onnx.ModelProto:
    """RotaryEmbedding of opset 23 of four heads of ``width``, of which 2 ``half`` turn."""
    size = width
    shape = [2, 5, 4 * size] if flat else [2, 4, 5, size]
    attributes = {"num_heads": 4} if flat else {}
    if 2 * half < size:
        attributes["rotary_embedding_dim"] = 2 * half
    node = helper.make_node("RotaryEmbedding", ["x", "c", "s", "p"], ["y"], **attributes)
    inputs = {"x": shape, "c": [9, half], "s": [9, half]}
    graph = helper.make_graph(
        [node],
        "rotary",
        [
            *(helper.make_tensor_value_info(n, 1, dims) for n, dims in inputs.items()),
            helper.make_tensor_value_info("p", 7, [2, 5]),
        ],
        [helper.make_tensor_value_info("y", 1, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


@pytest.mark.parametrize(("width", "half"), [(16, 8), (24, 8)])
@pytest.mark.parametrize("flat", [False, True])
def test_operator_of_onnx(width: int, flat: bool, half: int, tmp_path: Path) -> None:
    model = _standard(width, flat, half)
    report = byoc.compile(model, tmp_path / "m.so").report
    names = [node.operator for node in report.graph.nodes]
    assert names.count("ext.rotary") == 1 and len(report.regions) == 1 and report.left == ()
    rng = np.random.default_rng(3)
    shapes = {
        i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input
    }
    inputs = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items() if n != "p"}
    inputs["p"] = rng.integers(0, 9, (2, 5))
    assert_agrees(byoc.load(tmp_path / "m.so").run(inputs), onnxruntime_outputs(model, inputs))
