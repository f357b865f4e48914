"""Bags of embeddings as PyTorch's exporters write them: a Loop over the offsets of the bags."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import byoc
from byoc.errors import AxesNote
from tests.reference import onnxruntime_outputs

#: How a bag's rows become one; empty bags are 0.
REDUCED = ("ReduceSum", "ReduceMean", "ReduceMax")

#: What is left to TVM counts rounds and reads offsets.
WHAT_COMPUTES = ("relax.matmul", "relax.sum", "relax.mean", "relax.max")


def _bags(reduced: str, joined: str = "<axis = 0>", read: str = "i") -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    table, weight = (", ".join(map(str, rng.uniform(-1, 1, size))) for size in (80, 64))
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (int64[n] words, int64[b] offsets) => (float[bags, 8] y)
        <float[10, 8] table = {{{table}}}, float[8, 8] w = {{{weight}}}, int64[1] flat = {{-1}},
         int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64[1] rows = {{0}}>
        {{
          list = Reshape(words, flat)
          found = Gather(table, list)
          right = MatMul(found, w)
          count = Shape(list)
          size = Size(offsets)
          ends = Concat<axis = 0>(offsets, count)
          none = SequenceEmpty<dtype = 1>()
          any = Less(zero, size)
          after, filled = Loop(, any, zero, none) <body = round (
            int64 number, bool going, int64 i, seq(float[k, 8]) held
          ) => (bool more, int64 next, seq(float[l, 8]) longer) {{
            at = Reshape({read}, flat)
            past = Add(at, one)
            beyond = Add(at, two)
            begin = Slice(ends, at, past)
            end = Slice(ends, past, beyond)
            empty = Equal(begin, end)
            row = If(empty) <
              then_branch = nothing () => (float[1, 8] a)
              <float[1, 8] a = {{0, 0, 0, 0, 0, 0, 0, 0}}> {{}},
              else_branch = something () => (float[1, 8] c) {{
                part = Slice(right, begin, end)
                c = {reduced}(part, rows)
              }}
            >
            longer = SequenceInsert(held, row)
            next = Add(i, one)
            more = Less(next, size)
          }}>
          y = ConcatFromSequence {joined} (filled)
        }}"""
    )


@pytest.mark.slow
@pytest.mark.parametrize("reduced", REDUCED)
def test_bags_of_any_length(reduced: str, tmp_path: Path) -> None:
    model = _bags(reduced)
    report = byoc.compile(model, tmp_path / "m.so").report
    assert report.regions
    assert not [left for left in report.left if left.op in WHAT_COMPUTES]
    library = byoc.load(tmp_path / "m.so")
    rng = np.random.default_rng(1)
    for words, offsets in ((9, [0, 2, 2, 7]), (5, [0]), (3, [0, 3, 3]), (4, [1, 2])):
        inputs = {"words": rng.integers(0, 10, words), "offsets": np.array(offsets)}
        want = onnxruntime_outputs(model, inputs)["y"]
        np.testing.assert_allclose(library.run(inputs)["y"], want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("form", ["joined", "read"])
def test_other_loops_over_lists_get_sizes(form: str, tmp_path: Path) -> None:
    # Rows joined side by side, and places that no condition looked at: rounds are written out.
    model = (
        _bags("ReduceSum", "<axis = 1>") if form == "joined" else _bags("ReduceSum", read="number")
    )
    with pytest.warns(AxesNote, match="have sizes"):
        byoc.compile(model, tmp_path / "m.so")
    inputs = {"words": np.array([3]), "offsets": np.array([0])}
    want = onnxruntime_outputs(model, inputs)["y"]
    np.testing.assert_array_equal(byoc.load(tmp_path / "m.so").run(inputs)["y"], want)


@pytest.mark.slow
def test_several_tables(tmp_path: Path) -> None:
    """Each loop gives the rows that it is followed by, wherever it stands in the graph."""
    one = _bags("ReduceSum")
    other = onnx.compose.add_prefix(_bags("ReduceMean"), "other_")
    for node in other.graph.node:  # both read the same words and offsets
        shared = ("other_words", "other_offsets")
        node.input[:] = [n.removeprefix("other_") if n in shared else n for n in node.input]
    one.graph.node.extend(other.graph.node)
    one.graph.initializer.extend(other.graph.initializer)
    one.graph.output.extend(other.graph.output)
    byoc.compile(one, tmp_path / "m.so")
    library = byoc.load(tmp_path / "m.so")
    inputs = {"words": np.array([3, 1, 4, 1, 5]), "offsets": np.array([0, 2, 2])}
    want, got = onnxruntime_outputs(one, inputs), library.run(inputs)
    for name in ("y", "other_y"):
        np.testing.assert_allclose(got[name], want[name], rtol=1e-6, atol=1e-6)
