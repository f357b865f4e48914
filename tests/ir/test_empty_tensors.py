"""Tensors without elements: no rule raises, and what comes out has the right shape."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import byoc
from byoc.canonicalise import canonicalise
from byoc.compiler.partition import partition_with_report

from .graphs import constant, operators, random, relax_module
from .interpret import run_with_tvm

Build = Callable[[relax.Expr], relax.Expr]


def vector(size: int) -> relax.Expr:
    return constant(random(size))


def batch_norm(x: relax.Expr) -> relax.Expr:
    parameters = [vector(int(x.ty.shape[1])) for _ in range(4)]
    return op.nn.batch_norm(x, *parameters, axis=1, training=False)[0]


#: Operators that rules write in others, most of them with a reshape; shapes with an extent of 0.
CASES: dict[str, tuple[Build, tuple[int, ...]]] = {
    "stack": (lambda x: op.stack([x, x], 0), (0,)),
    "stack of rows": (lambda x: op.stack([x, x], 0), (0, 3)),
    "stack behind": (lambda x: op.stack([x, x], -1), (2, 0)),
    "tile": (lambda x: op.tile(x, [2]), (2, 3, 0)),
    "repeat": (lambda x: op.repeat(x, 2, 0), (2, 3, 0)),
    "repeat inside": (lambda x: op.repeat(x, 2, 1), (1, 0, 4)),
    "squeeze": (op.squeeze, (1, 0, 1)),
    "expand_dims": (lambda x: op.expand_dims(x, 0), (0, 3)),
    "flatten": (op.flatten, (2, 0)),
    "permute_dims": (lambda x: op.permute_dims(x, [1, 0, 2]), (0, 1, 3)),
    "flip": (lambda x: op.flip(x, 0), (0, 3)),
    "split": (lambda x: op.split(x, 2, 1)[1], (0, 4)),
    "dot product": (lambda x: op.matmul(x, x), (0,)),
    "product": (lambda x: op.matmul(x, constant(random(3, 4))), (0, 3)),
    "empty inner axis": (lambda x: op.matmul(x, constant(random(0, 4))), (2, 0)),
    "conv1d": (lambda x: op.nn.conv1d(x, constant(random(4, 3, 1))), (0, 3, 5)),
    "conv2d": (lambda x: op.nn.conv2d(x, constant(random(4, 3, 1, 1))), (0, 3, 5, 5)),
    "conv2d_transpose": (
        lambda x: op.nn.conv2d_transpose(x, constant(random(3, 4, 2, 2)), strides=(2, 2)),
        (0, 3, 5, 5),
    ),
    "max_pool3d": (lambda x: op.nn.max_pool3d(x, (2, 2, 2)), (0, 3, 4, 4, 4)),
    "adaptive_avg_pool2d": (lambda x: op.nn.adaptive_avg_pool2d(x, (2, 2)), (0, 3, 4, 4)),
    "resize2d": (lambda x: op.image.resize2d(x, (8, 8), layout="NCHW"), (0, 3, 4, 4)),
    "batch_norm": (batch_norm, (0, 3, 4)),
    "group_norm": (
        lambda x: op.nn.group_norm(x, vector(4), vector(4), 2, 1, [2, 3]),
        (0, 4, 3, 3),
    ),
    "prelu": (lambda x: op.nn.prelu(x, vector(3), 1), (0, 3)),
    "variance": (lambda x: op.variance(x, [1]), (0, 3)),
    "attention": (lambda x: op.nn.attention(x, x, x), (1, 0, 2, 4)),
    "softmax": (lambda x: op.nn.softmax(x, -1), (0, 4)),
    "tril": (lambda x: op.tril(x, 0), (0, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_no_rule_raises(name: str) -> None:
    build, shape = CASES[name]
    mod = relax_module(lambda emit, x: emit(build(x)), shape)
    relax.analysis.well_formed(canonicalise(mod))
    relax.analysis.well_formed(partition_with_report(mod, min_bytes=0)[0])


def test_values() -> None:
    """Of all cases in one module; what is not empty is a sum over nothing."""
    builds, shapes = zip(*CASES.values(), strict=True)

    def build(emit, *inputs):
        return relax.Tuple([emit(each(x)) for each, x in zip(builds, inputs, strict=True)])

    mod = relax_module(build, *shapes)
    out, report = partition_with_report(mod, min_bytes=0)
    assert (report.operators, report.left) == (0, ())  # constants all
    byoc._autoload()
    results = run_with_tvm(relax.transform.RunCodegen()(out), *(np.zeros(s, "f4") for s in shapes))
    for name, expected, result in zip(CASES, mod["main"].ret_ty.fields, results, strict=True):
        assert result.shape == tuple(int(extent) for extent in expected.shape), name
        assert (result == 0).all(), name


def test_rules_go_on_beside_an_empty_tensor() -> None:
    def build(emit, x, empty):
        return relax.Tuple([emit(op.stack([x, x], 0)), emit(op.stack([empty, empty], 0))])

    canonical = canonicalise(relax_module(build, (2, 3), (0, 3)))
    assert operators(canonical).count("relax.stack") == 0
    assert operators(canonical).count("relax.concat") == 1


@pytest.mark.parametrize("axis", [0, 2])
def test_prelu_whose_slopes_do_not_fit_its_axis_is_left_alone(axis: int) -> None:
    """TVM's importer may name the wrong axis."""
    mod = relax_module(lambda emit, x: emit(op.nn.prelu(x, vector(3), axis)), (2, 3, 4))
    assert operators(canonicalise(mod)) == ["relax.nn.prelu"]


@pytest.mark.parametrize("shape", [(0,), (6, 0), (0, 6), (2, 3, 0)], ids=str)
def test_results_that_are_constants_can_be_loaded(shape: tuple[int, ...], tmp_path: Path) -> None:
    """From plain TVM's library, which takes those of shape [6, 0] for damaged."""
    nothing = constant(np.empty(shape, np.float32))

    def build(emit, x):
        return relax.Tuple([nothing, emit(op.concat([nothing, nothing], 0)), emit(op.nn.relu(x))])

    out, report = partition_with_report(relax_module(build, (4, 5)), min_bytes=0)
    assert len(report.regions) == 1
    byoc._autoload()
    executable = tvm.compile(relax.transform.RunCodegen()(out), "llvm")
    executable.export_library(str(tmp_path / "m.so"))
    library = tvm.runtime.load_module(str(tmp_path / "m.so"))
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    found = relax.VirtualMachine(library, tvm.cpu())["main"](tvm.runtime.tensor(x))
    once, twice, rectified = (result.numpy() for result in found)
    assert once.shape == shape and twice.shape == (2 * shape[0], *shape[1:])
    np.testing.assert_array_equal(rectified, np.maximum(x, 0))
