"""Tables of kernels with two results: topk's, and those of an operator of the user's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from onnx import parser
from tvm import relax

import byoc
from byoc.compiler.partition import partition_with_report
from byoc.library import Kernel, Library, LibraryError, Link, Operator
from byoc.patterns.row import candidate
from codegen_cc import supports
from codegen_cc.node import Node, Operand, Result
from tests.reference import onnxruntime_outputs

SOURCE = """
#include "own.h"

int own_topk(const float* x, int64_t outer, int64_t extent, int64_t inner, int64_t k, float* values,
             int64_t* indices, int64_t rows, int64_t columns) {
  if (inner != 1 || rows != outer || columns != k) return 1;
  for (int64_t o = 0; o < outer; o++, x += extent)
    for (int64_t j = 0; j < k; j++) {
      int64_t best = -1;
      for (int64_t r = 0; r < extent; r++) {
        int taken = 0;
        for (int64_t i = 0; i < j; i++) taken |= indices[o * k + i] == r;
        if (!taken && (best < 0 || x[r] > x[best])) best = r;
      }
      indices[o * k + j] = best;
      values[o * k + j] = x[best];
    }
  return 0;
}

void own_halves(float* right, int64_t rows, int64_t columns, const float* x, float* left) {
  for (int64_t i = 0; i < rows * 2 * columns; i++)
    (i / columns % 2 ? right : left)[i / columns / 2 * columns + i % columns] = x[i];
}
"""
HEADER = """
#include <stdint.h>
int own_topk(const float* x, int64_t outer, int64_t extent, int64_t inner, int64_t k, float* values,
             int64_t* indices, int64_t rows, int64_t columns);
void own_halves(float* right, int64_t rows, int64_t columns, const float* x, float* left);
"""
TOPK = ("input", "outer", "reduce", "inner", "k", "values", "indices", "values.0", "indices.1")
HALVES = Operator("halves", roles=("input",), results=("left", "right"))
KERNELS = (
    Kernel("topk", "own_topk", TOPK, dtypes={"indices": "int64"}),
    Kernel("halves", "own_halves", ("right", "right.0", "left.1", "input", "left"), returns="void"),
)


pytestmark = pytest.mark.usefixtures("forget_operators")


def library(folder: Path, *kernels: Kernel) -> Library:
    (folder / "own.c").write_text(SOURCE)
    (folder / "own.h").write_text(HEADER)
    link = Link(headers=("own.h",), include_dirs=(folder,), sources=(folder / "own.c",))
    return Library(
        "own", version="1", abi=1, link=link, operators=(HALVES,), kernels=kernels or KERNELS
    )


def test_a_kernel_of_topk(tmp_path: Path) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4, 12] x)'
        " => (float[4, 3] y, int64[4, 3] i) <int64[1] k = {3}>"
        " { n = Neg(x)  v, i = TopK(n, k)  y = Exp(v) }"
    )
    report = byoc.compile(
        model, tmp_path / "m.so", libraries=[library(tmp_path), "builtin"], min_bytes=0
    ).report
    assert len(report.regions) == 1 and not report.left
    chosen = {node.operator: node.kernel.library for node in report.graph.nodes}
    assert chosen["ext.topk"] == "own" and chosen["ext.exp"] == "builtin"
    x = np.round(2 * np.random.default_rng(4).standard_normal((4, 12))).astype("float32")
    got = byoc.load(tmp_path / "m.so").run({"x": x})
    want = onnxruntime_outputs(model, {"x": x})
    np.testing.assert_array_equal(got["i"], want["i"])
    np.testing.assert_allclose(got["y"], want["y"], rtol=1e-5)


def test_an_operator_of_ones_own(tmp_path: Path) -> None:
    byoc.register_ext_op(
        "relax.split", build=lambda call: candidate("halves", call, [("input", call.args[0])])
    )
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.split(x, 2, axis=1))
        builder.emit_func_output(y)
    module, report = partition_with_report(
        builder.get(), libraries=[library(tmp_path), "builtin"], min_bytes=0
    )
    assert len(report.regions) == 1 and not report.left
    built = tvm.compile(relax.transform.RunCodegen()(module), "llvm")
    values = np.random.default_rng(5).standard_normal((3, 8)).astype("float32")
    found = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(values))
    for part, expected in zip(found, np.split(values, 2, axis=1), strict=True):
        np.testing.assert_array_equal(part.numpy(), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (TOPK[:6], "no argument 'indices'; the result could not be written"),
        ((*TOPK, "output"), "unknown argument 'output'"),
        ((*TOPK, "indices.x"), "unknown argument 'indices.x'; did you mean 'indices'"),
    ],
)
def test_tables_that_are_refused(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(LibraryError, match=message):
        library(tmp_path, Kernel("topk", "own_topk", arguments, dtypes={"indices": "int64"}))


def topk_node(returned: str = "both", dtype: str = "int64", rank: int = 2, **attrs) -> Node:
    shape = (4,) * (rank - 1)
    results = [Result((*shape, 3), "float32"), Result((*shape, 3), dtype)]
    (first, *further) = results if returned == "both" else results[:1]
    operands = (Operand("input", (*shape, 12), "float32"),)
    attrs = {"axis": rank - 1, "largest": True, "ret_type": returned} | attrs
    return Node("topk", operands, first.shape, first.dtype, attrs, further=tuple(further))


def test_nodes_that_are_refused(tmp_path: Path) -> None:
    own = library(tmp_path)
    assert own.supports(topk_node()) is None
    assert own.supports(topk_node("values")) == "1 of the results values, indices; need all"
    assert own.supports(topk_node(dtype="int32")) == "indices is int32; need int64"
    assert own.supports(topk_node(largest=False)) == "largest is False, which own_topk is not told"
    assert own.supports(topk_node(rank=1)) == (
        "argument indices.1: indices has rank 1, without axis 1"
    )
    silent = tuple(name for name in TOPK if name != "k")
    untold = library(tmp_path, Kernel("topk", "own_topk", silent, dtypes={"indices": "int64"}))
    assert untold.supports(topk_node()) == "k is 3, which own_topk is not told"


def test_more_results_than_the_operator_has() -> None:
    """Whichever library is asked: the second one would be left out in silence."""
    operands = (Operand("input", (2, 3), "float32"),)
    node = Node("softmax", operands, (2, 3), "float32", {"axis": 1, "log": False})
    assert supports(node) is None
    more = replace(node, further=node.results)
    assert supports(more) == "2 results; softmax has output"
