"""Bags of as many words each, as PyTorch's exporters write them: one reduction, without a Loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import byoc
from tests.reference import onnxruntime_outputs

REDUCED = ("ReduceSum", "ReduceMean", "ReduceMax")

#: The rows of bag i, by a loop that counts for itself, over words.
BY_NUMBER = """
    later = Slice(offsets, one, end, nought, one) many = Shape(later) bags = Gather(many, zero)
    y = Loop(bags, yes) <body = round (int64 i, bool go) => (bool more, float[d] row)
      <bool always = {{1}}, int64[1] rows = {{0}}>
    {{
      first = Gather(offsets, i) last = Gather(later, i)
      begin = Unsqueeze(first, nought) stop = Unsqueeze(last, nought)
      some = Slice(line, begin, stop, nought) found = Gather(table, some)
      row = {reduced} <keepdims = 0> (found, rows) more = Cast <to = 9> (always)
    }}>"""

#: The same with a state that counts, over rows, and with a branch for bags that are empty.
BY_STATE = """
    all = Gather(table, line) bags = Size(starts) any = Less(zero, bags)
    none = SequenceEmpty <dtype = 1> ()
    after, filled = Loop(, any, zero, none) <body = round (
      int64 n, bool go, int64 i, seq(float[k, 4]) held
    ) => (bool more, int64 next, seq(float[l, 4]) longer)
      <int64 step = {{1}}, int64 two = {{2}}, int64[1] flat_i = {{-1}}, int64[1] rows = {{0}}>
    {{
      at = Reshape(i, flat_i) by = CastLike(step, at) past = Add(at, by)
      twice = CastLike(two, at) beyond = Add(at, twice)
      begin = Slice(offsets, at, past) stop = Slice(offsets, past, beyond)
      empty = Equal(begin, stop)
      row = If(empty) <
        then_branch = nothing () => (float[1, 4] a) <float[1, 4] a = {{0, 0, 0, 0}}> {{}},
        else_branch = something () => (float[1, 4] c) {{
          part = Slice(all, begin, stop) c = {reduced}(part, rows)
        }}>
      longer = SequenceInsert(held, row)
      by_i = CastLike(step, i) next = Add(i, by_i) more = Less(next, bags)
    }}>
    y = ConcatFromSequence <axis = 0> (filled)"""


def bags(loop: str, reduced: str, size: int = 3, step: int = 3) -> onnx.ModelProto:
    """Bags of ``size`` words, parted at each ``step``."""
    table = ", ".join(map(str, np.random.default_rng(0).uniform(-1, 1, 40)))
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]> g (int64[n, {size}] words)
          => (float[a, 4] y)
        <float[10, 4] table = {{{table}}}, int64 zero = {{0}}, int64 apart = {{{step}}},
         int64[1] one = {{1}}, int64[1] nought = {{0}}, int64[1] flat = {{-1}},
         int64[1] end = {{9223372036854775807}}, bool yes = {{1}}>
        {{
          line = Reshape(words, flat) extents = Shape(words)
          all_words = ReduceProd <keepdims = 0> (extents)
          starts = Range(zero, all_words, apart) total = Shape(line)
          offsets = Concat <axis = 0> (starts, total) {loop.format(reduced=reduced)}
        }}"""
    )


def check(model: onnx.ModelProto, size: int, folder: Path, *counts: int) -> byoc.Report:
    """The report, of a library that agrees with ONNX Runtime for all numbers of bags."""
    report = byoc.compile(model, folder / "m.so", min_bytes=0).report
    library = byoc.load(folder / "m.so")
    for count in counts:
        inputs = {"words": np.random.default_rng(count).integers(0, 10, (count, size))}
        want = onnxruntime_outputs(model, inputs)["y"]
        np.testing.assert_allclose(library.run(inputs)["y"], want, rtol=1e-5, atol=1e-6)
    return report


@pytest.mark.parametrize("reduced", REDUCED)
@pytest.mark.parametrize("loop", [BY_NUMBER, BY_STATE])
def test_equal_bags_are_one_reduction(loop: str, reduced: str, tmp_path: Path) -> None:
    report = check(bags(loop, reduced), 3, tmp_path, 1, 2, 7)
    assert (report.left, len(report.regions)) == ((), 1)


def test_bags_of_one_word(tmp_path: Path) -> None:
    report = check(bags(BY_NUMBER, "ReduceSum", 1, 1), 1, tmp_path, 1, 5)
    assert (report.left, len(report.regions)) == ((), 1)


def test_no_bags(tmp_path: Path) -> None:
    byoc.compile(bags(BY_NUMBER, "ReduceSum"), tmp_path / "m.so", min_bytes=0)
    found = byoc.load(tmp_path / "m.so").run({"words": np.zeros((0, 3), "int64")})
    assert found["y"].shape == (0, 4)


@pytest.mark.slow
def test_bags_of_other_sizes_stay_a_loop(tmp_path: Path) -> None:
    """Parted at every second of three words: the last bag has what is left."""
    assert check(bags(BY_NUMBER, "ReduceSum", 3, 2), 3, tmp_path, 3, 4).left
