"""Nodes with several results, with an operator of two that the test brings along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.relax import op

from byoc.compiler.partition import partition_with_report
from byoc.ir.dataflow import is_region
from byoc.partition.annotate import annotate
from byoc.partition.merge import merge
from byoc.partition.prune import prune
from byoc.partition.rules import Rules
from byoc.patterns.registry import register_ext_op, unregister_ext_op
from byoc.patterns.row import candidate
from codegen_cc import operator
from codegen_cc.dim import symbol
from codegen_cc.libraries import LIBRARY_ABI, Link, Selection, registry
from codegen_cc.libraries.measured_choice import signature
from codegen_cc.module import plan_functions
from codegen_cc.node import Node, Operand, Result
from codegen_cc.operator import Operator
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.region.graph import RegionNode
from codegen_cc.region.read_relax import read_region

from .graphs import operators, random, regions, relax_module
from .interpret import run_with_tvm, without_regions
from .run_regions import CompiledRegions

SHAPE = (3, 8)

SOURCE = """\
#include <stdint.h>
void halves(int64_t rows, int64_t n, const float* x, float* left, float* right) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < n; i++) {
      left[r * n + i] = x[2 * r * n + i];
      right[r * n + i] = x[(2 * r + 1) * n + i];
    }
}
"""
HEADER = """\
#include <stdint.h>
void halves(int64_t rows, int64_t n, const float* x, float* left, float* right);
"""


class Halves:
    """``halves``: the two halves of each row of a matrix."""

    name, version, abi, status_text, threads = "halves", "1", LIBRARY_ABI, None, None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "halves.h").write_text(HEADER)
        (folder / "halves.c").write_text(SOURCE)

    def supports(self, node: Node) -> str | None:
        """No other operator."""
        return None if node.op == "halves" else f"operator {node.op}; need halves"

    def lower(self, node: RegionNode, builder: PlanBuilder) -> None:
        """One call that writes two tensors."""
        x = builder.dense(builder.tensor(node.inputs[0]))
        results = [builder.space(value.shape, value.dtype) for value in node.outputs]
        arguments = [*results[0].shape, x, *results]
        builder.call("halves", arguments, results, "halves", "void", over=[x])
        for value, tensor in zip(node.outputs, results, strict=True):
            builder.place(value, tensor)

    def link(self) -> Link:
        """Its source."""
        return Link(("halves.h",), (self.folder,), (self.folder / "halves.c",))

    def algorithm(self, node: Node) -> str:
        """Always the same."""
        del node
        return "two loops"

    def cost(self, node: Node) -> float | None:
        """Not known."""
        del node


@pytest.fixture(autouse=True)
def halves(tmp_path: Path) -> Iterator[Halves]:
    stores = (registry._loaded, operator._known, operator._owners)
    operator.known_operators()
    copies, found = [dict(store) for store in stores], Halves(tmp_path)
    operator.register(Operator("halves", ("input",), results=("left", "right")), "halves")
    register_ext_op(
        "relax.split", build=lambda call: candidate("halves", call, [("input", call.args[0])])
    )
    yield found
    unregister_ext_op("relax.split")
    for store, copy in zip(stores, copies, strict=True):
        store.clear()
        store.update(copy)


def both(emit: Callable, x: relax.Var) -> tuple[relax.Var, relax.Var]:
    parts = emit(op.split(x, 2, axis=1))
    return emit(relax.TupleGetItem(parts, 0)), emit(relax.TupleGetItem(parts, 1))


def partitioned(halves: Halves, build: Callable[..., relax.Expr]) -> tvm.IRModule:
    rules = Rules(libraries=Selection.of([halves, "builtin"]))
    out = merge(annotate(relax_module(build, SHAPE), rules=rules))
    relax.analysis.well_formed(out)
    return out


def run_region(out: tvm.IRModule, halves: Halves, *inputs: np.ndarray) -> list[np.ndarray]:
    (function,) = [func for func in out.functions.values() if is_region(func)]
    region = read_region(function)
    return CompiledRegions([region], halves.folder, (halves,)).run(region.symbol, *inputs)


def test_both_results_inside_of_one_region(halves: Halves) -> None:
    def build(emit: Callable, x: relax.Var) -> relax.Expr:
        left, right = both(emit, emit(op.negative(x)))
        return emit(op.add(emit(op.exp(left)), right))

    out = partitioned(halves, build)
    assert operators(out) == []
    assert regions(out) == {"ext_main_0": ["ext.neg", "ext.halves", "ext.exp", "ext.add"]}
    x = random(*SHAPE)
    (y,) = run_region(out, halves, x)
    np.testing.assert_allclose(y, np.exp(-x[:, :4]) - x[:, 4:], rtol=1e-5)


@pytest.mark.parametrize("index", [0, 1])
def test_result_that_nobody_reads(halves: Halves, index: int) -> None:
    out = partitioned(halves, lambda emit, x: both(emit, x)[index])
    function = out["ext_main_0"]
    assert isinstance(function.ret_ty, relax.TensorType)
    (plan,) = plan_functions([function])
    assert len(plan.outputs) == 1 and len(plan.arena) == 1
    x = random(*SHAPE)
    (y,) = run_region(out, halves, x)
    np.testing.assert_array_equal(y, np.split(x, 2, 1)[index])


def test_results_that_are_returned_as_a_whole(halves: Halves) -> None:
    out = partitioned(halves, lambda emit, x: emit(op.split(x, 2, axis=1)))
    assert operators(out) == [] and regions(out) == {"ext_main_0": ["ext.halves"]}
    x = random(*SHAPE)
    for part, expected in zip(run_region(out, halves, x), np.split(x, 2, 1), strict=True):
        np.testing.assert_array_equal(part, expected)
    given_back = prune(out, verdict=lambda nodes: "test")
    assert regions(given_back) == {}
    for part, expected in zip(run_with_tvm(given_back, x), np.split(x, 2, 1), strict=True):
        np.testing.assert_array_equal(part, expected)


def test_results_that_another_operator_reads_as_a_whole(halves: Halves) -> None:
    """TVM joins the tuple; what reads one item of it stays in the region."""

    def build(emit: Callable, x: relax.Var) -> relax.Expr:
        parts = emit(op.split(x, 2, axis=1))
        first = emit(op.exp(emit(relax.TupleGetItem(parts, 0))))
        return relax.Tuple([emit(op.concat(parts, axis=0)), first])

    out = partitioned(halves, build)
    assert operators(out) == ["relax.concat"]
    assert regions(out) == {"ext_main_0": ["ext.halves", "ext.exp"]}
    x = random(*SHAPE)
    joined, first = run_with_tvm(without_regions(out), x)
    np.testing.assert_array_equal(joined, np.concatenate(np.split(x, 2, 1)))
    np.testing.assert_allclose(first, np.exp(x[:, :4]), rtol=1e-5)


def test_node_of_few_bytes_moves_with_all_of_its_results(halves: Halves) -> None:
    """What only a later region reads is computed there, and both results need no output."""

    def build(emit: Callable, x: relax.Var) -> relax.Expr:
        left, right = both(emit, x)
        late = emit(op.erf(emit(op.cumsum(emit(op.exp(x)), 1, dtype="float64"))))
        small = emit(op.astype(emit(op.strided_slice(late, [1], [0], [4])), "float32"))
        return emit(op.add(emit(op.multiply(left, small)), right))

    out = partitioned(halves, build)
    first, second = regions(out).values()
    assert "ext.halves" in second and "ext.halves" not in first


def test_result_that_is_cast_where_it_is_bound(halves: Halves) -> None:
    """The cast defines n for what follows, so it stays, and reads an output of the region."""
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            parts = builder.emit(op.split(x, 2, axis=1))
            kind = relax.TensorType([3, tirx.Var("n", "int64")], "float32")
            cast = builder.match_cast(relax.TupleGetItem(parts, 0), kind)
            right = builder.emit(relax.TupleGetItem(parts, 1))
            y = builder.emit_output(relax.Tuple([cast, builder.emit(op.exp(right))]))
        builder.emit_func_output(y)
    rules = Rules(libraries=Selection.of([halves, "builtin"]))
    out = merge(annotate(builder.get(), rules=rules))
    relax.analysis.well_formed(out)
    assert regions(out) == {"ext_main_0": ["ext.halves", "ext.exp"]}
    values = random(*SHAPE)
    left, right = run_with_tvm(without_regions(out), values)
    np.testing.assert_array_equal(left, values[:, :4])
    np.testing.assert_allclose(right, np.exp(values[:, 4:]), rtol=1e-5)


def test_builder_that_miscounts_the_results(halves: Halves) -> None:
    build = lambda call: candidate("halves", call.args[0], [("input", call.args[0])])  # noqa: E731
    register_ext_op("relax.split", build=build)
    mod = relax_module(lambda emit, x: emit(op.split(x, 2, axis=1)), SHAPE)
    _, report = partition_with_report(mod, libraries=[halves, "builtin"])
    (left,) = report.left
    assert left.reason == "node halves has 1 results; need the 2 of the call"


def test_descriptor() -> None:
    n = symbol("n")
    node = Node(
        "topk",
        (Operand("input", (n, 8), "float32"),),
        (n, 3),
        "float32",
        further=(Result((n, 3), "int64"),),
    )
    assert Node.from_json(node.to_json()) == node
    assert node.results == (Result((n, 3), "float32"), Result((n, 3), "int64"))
    assert node.bytes_moved == 4 * 8 * n + (4 + 8) * 3 * n
    assert signature(node).endswith("-> float32[n,3] int64[n,3]")
