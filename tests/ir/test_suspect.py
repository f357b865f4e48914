"""BatchNorm as TVM's importer of undecomposed PyTorch programs writes it."""

from __future__ import annotations

import warnings

import pytest
import tvm
from tvm import relax
from tvm.relax import op

import byoc
from byoc.compiler.partition import partition_with_report
from tests.ir.graphs import constant, random
from tests.report.modules import floats, typed_module


def norm(x: relax.Expr, training: bool) -> relax.Expr:
    """As ``from_exported_program`` writes it: all three results, of which one is taken."""
    statistics = [constant(abs(random(3, seed=seed)) + 0.5) for seed in range(4)]
    return op.nn.batch_norm(x, *statistics, axis=1, training=training)


def warned(mod: tvm.IRModule) -> list[str]:
    """The texts of the warnings of this kind."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        partition_with_report(mod)
    return [str(w.message) for w in caught if w.category is byoc.SuspectWarning]


IMAGE = floats(2, 3, 16, 16)


def test_training_statistics_that_nobody_keeps_are_suspect():
    mod = typed_module(lambda x: op.nn.relu(norm(norm(x, True)[0], True)[0]), IMAGE)
    (text,) = warned(mod)
    assert text.startswith("2 x relax.nn.batch_norm (")
    assert "training=True" in text and "run_ep_decomposition=True" in text and "\n" not in text


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda x: norm(x, False)[0], id="inference"),
        pytest.param(lambda x: norm(x, True), id="all results"),
        pytest.param(lambda x: relax.Tuple([(y := norm(x, True))[0], y[1]]), id="statistics"),
    ],
)
def test_inference_and_real_training_are_not(build):
    assert warned(typed_module(build, IMAGE)) == []


def test_it_stays_as_it_is():
    """A warning, no rewrite: TVM computes what the module says."""
    with pytest.warns(byoc.SuspectWarning):
        report = partition_with_report(
            typed_module(lambda x: norm(x, True)[0], IMAGE), min_bytes=0
        )[1]
    (left,) = report.left
    assert left.op == "relax.nn.batch_norm" and "training True" in left.reason
