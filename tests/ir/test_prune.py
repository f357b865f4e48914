"""Regions that are not worth a call go back to TVM, and the report says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import byoc
from byoc.compiler.partition import partition_with_report
from byoc.compiler.single_region import SingleRegion, single_region
from byoc.partition.prune import MIN_COMPUTE_BYTES, too_little_work
from codegen_cc.node import Node, Operand

from .graphs import constant, operators, random, regions, relax_module
from .interpret import run_with_tvm


def _with_tvms(emit, x, *results):
    """Results beside one of TVM's alone: a region that is the whole network is always called."""
    return relax.Tuple([*results, emit(op.sinh(x))])


def test_movement_alone_goes_back() -> None:
    def build(emit, x):
        parts = [emit(op.permute_dims(x, [1, 0])), constant(random(3, 2))]
        return _with_tvms(emit, x, emit(op.concat(parts, axis=1)))

    mod = relax_module(build, (2, 3))
    out, report = partition_with_report(mod)
    relax.analysis.well_formed(out)
    assert regions(out) == {}
    assert sorted(operators(out)) == ["relax.concat", "relax.permute_dims", "relax.sinh"]
    assert {entry.reason for entry in report.left if entry.op != "relax.sinh"} == {
        "region of data movement alone (2 nodes); need one that computes"
    }
    x = random(2, 3)
    for got, want in zip(run_with_tvm(out, x), run_with_tvm(mod, x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_movement_with_several_results_goes_back() -> None:
    def build(emit, x):
        y = emit(op.permute_dims(x, [1, 0]))
        return _with_tvms(emit, x, y, emit(op.reshape(y, [6])))

    mod = relax_module(build, (2, 3))
    out, _ = partition_with_report(mod)
    relax.analysis.well_formed(out)
    assert regions(out) == {}
    x = random(2, 3)
    for got, want in zip(run_with_tvm(out, x), run_with_tvm(mod, x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_movement_beside_work_stays() -> None:
    def build(emit, x):
        return emit(op.permute_dims(emit(op.nn.relu(x)), [1, 0]))

    out, _ = partition_with_report(relax_module(build, (8, 8)))
    assert regions(out) == {"ext_main_0": ["ext.relu", "ext.permute"]}


@pytest.mark.parametrize(("width", "kept"), [(256, True), (2, False)])
def test_rows_joined_to_a_symbolic_number_are_copied(
    width: int, kept: bool, tmp_path: Path
) -> None:
    def build(emit, x, y):
        return _with_tvms(emit, x, emit(op.concat([x, y], axis=0)))

    mod = relax_module(build, *((tvm.tirx.Var(name, "int64"), width) for name in "nm"))
    out, report = partition_with_report(mod)
    assert regions(out) == ({"ext_main_0": ["ext.concat"]} if kept else {})
    assert ("relax.concat" in {entry.op for entry in report.left}) is not kept
    x, y = random(3, width), random(2, width)
    byoc.compile(mod, tmp_path / "joined.so")
    with byoc.load(tmp_path / "joined.so") as model:
        np.testing.assert_array_equal(model(x, y)[0], np.concatenate([x, y]))


def _transposed(emit, x):
    return emit(op.permute_dims(x, [1, 0]))


WHOLE = {"relu": (lambda emit, x: emit(op.nn.relu(x)), lambda x: np.maximum(x, 0))}
WHOLE["permute"] = (_transposed, np.transpose)


@pytest.mark.parametrize(("rows", "kept"), [(400, True), (200, False)])
def test_repeated_elements_are_copied(rows: int, kept: bool) -> None:
    def build(emit, x):
        wide = emit(op.broadcast_to(emit(op.reshape(x, (rows, 1))), (rows, 2)))
        return _with_tvms(emit, x, emit(op.reshape(wide, (2 * rows,))))

    out, _ = partition_with_report(relax_module(build, (rows,)))
    assert bool(regions(out)) is kept


def test_an_only_element_without_its_axis_is_no_repetition() -> None:
    def build(emit, x):
        return _with_tvms(emit, x, emit(op.reshape(x, ())))

    out, _ = partition_with_report(relax_module(build, (1,)))
    assert regions(out) == {}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "fixed"])
def test_whole_network_is_called_without_virtual_machine(
    name: str, is_open: bool, tmp_path: Path
) -> None:
    build, formula = WHOLE[name]
    extents = tuple(tvm.tirx.Var(symbol, "int64") for symbol in "nm") if is_open else (3, 4)
    mod = relax_module(build, extents)
    out, report = partition_with_report(mod)
    assert regions(out) == {"ext_main_0": [f"ext.{name}"]}
    assert report.left == () and isinstance(single_region(out), SingleRegion)
    byoc.compile(mod, tmp_path / "whole.so")
    with byoc.load(tmp_path / "whole.so") as model:
        for shape in ((3, 70), (1, 1), (0, 4)) if is_open else (extents,):
            np.testing.assert_array_equal(model(random(*shape)), formula(random(*shape)))


def unary(count: int) -> Node:
    """relu of so many elements."""
    attrs = {"kind": "relu", "alpha": 0.0, "beta": 0.0}
    return Node("unary", (Operand("input", (count,), "float32"),), (count,), "float32", attrs)


@pytest.mark.parametrize(("count", "kept"), [(MIN_COMPUTE_BYTES // 8, True), (1, False)])
def test_threshold(count: int, kept: bool) -> None:
    verdict = too_little_work([unary(count)])
    assert (verdict is None) == kept
    assert (
        kept
        or verdict
        == f"region of 0 MACs and 8 bytes; need {MIN_COMPUTE_BYTES} bytes to be worth a call"
    )


def test_report_says_what_the_next_lower_threshold_would_add() -> None:
    def build(emit, x):
        return _with_tvms(emit, x, emit(op.exp(emit(op.tanh(x)))))

    mod = relax_module(build, (2, 3))
    out, report = partition_with_report(mod)
    assert regions(out) == {}
    assert (report.next_threshold.operators, report.next_threshold.bytes) == (2, 96)
    out, report = partition_with_report(mod, min_bytes=96)
    assert regions(out) == {"ext_main_0": ["ext.tanh", "ext.exp"]}
    assert report.next_threshold is None


def test_every_region_can_be_kept() -> None:
    mod = relax_module(lambda emit, x: emit(op.permute_dims(x, [1, 0])), (2, 3))
    out, _ = partition_with_report(mod, min_bytes=0)
    assert regions(out) == {"ext_main_0": ["ext.permute"]}
