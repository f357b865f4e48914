"""Fields of a table of another kind than they have to be, and calls that fit no prototype."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import byoc
from byoc.library import Kernel, Library, LibraryError, Link
from codegen_cc.errors import CodegenError
from tests.reference import assert_agrees, onnxruntime_outputs

#: A function that is in no header: C before 2023 takes it to get doubles and to return an int.
SOURCE = """
#include "own.h"
#include <math.h>

int own_product(const float* a, const float* b, float* sums, float* y, int64_t m, int64_t n,
                int64_t k) {
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) {
      sums[j] = 0;
      for (int64_t p = 0; p < k; p++) sums[j] += a[i * k + p] * b[p * n + j];
      y[i * n + j] = sums[j];
    }
  }
  return 0;
}

int own_hidden(const float* a, const float* b, float* y, float scale, int64_t m,
               int64_t n, int64_t k) {
  (void)m, (void)n, (void)k;
  y[0] = a[0] * b[0] * scale;
  return 0;
}

int own_attention(const float* q, const float* k, const float* v, const float* mask, float* y,
                  int64_t heads, int64_t queries, int64_t keys, int64_t depth, float scale,
                  int64_t mask_heads, int64_t mask_queries) {
  for (int64_t row = 0; row < heads * queries; row++) {
    const int64_t head = row / queries, query = row % queries;
    const float* add = mask + ((mask_heads > 1 ? head : 0) * mask_queries +
                               (mask_queries > 1 ? query : 0)) * keys;
    double sum = 0, result[64] = {0};
    for (int64_t j = 0; j < keys; j++) {
      double score = 0;
      const int64_t place = (head * keys + j) * depth;
      for (int64_t d = 0; d < depth; d++) score += q[row * depth + d] * k[place + d];
      const double share = exp(score * scale + add[j]);
      sum += share;
      for (int64_t d = 0; d < depth; d++) result[d] += share * v[place + d];
    }
    for (int64_t d = 0; d < depth; d++) y[row * depth + d] = result[d] / sum;
  }
  return 0;
}
"""
HEADER = """
#include <stdint.h>
int own_product(const float* a, const float* b, float* sums, float* y, int64_t m, int64_t n,
                int64_t k);
int own_attention(const float* q, const float* k, const float* v, const float* mask, float* y,
                  int64_t heads, int64_t queries, int64_t keys, int64_t depth, float scale,
                  int64_t mask_heads, int64_t mask_queries);
"""
PRODUCT = ("lhs", "rhs", "scratch", "output", "m", "n", "k")
ATTENTION = ("query", "key", "value", "mask", "output", "heads", "queries", "keys", "depth")


pytestmark = pytest.mark.usefixtures("forget_libraries")


def library(folder: Path, kernel: Kernel) -> Library:
    """Its files are told as texts."""
    (folder / "own.c").write_text(SOURCE)
    (folder / "own.h").write_text(HEADER)
    link = Link(headers=["own.h"], include_dirs=[str(folder)], sources=(f"{folder}/own.c",))
    return Library("own", version="1", abi=1, link=link, kernels=[kernel])


def kernel(function: str = "own_product", arguments: tuple = PRODUCT, **fields) -> Kernel:
    scratch = {"scratch": lambda node: 4 * node.shape[-1]} if "scratch" in arguments else {}
    return Kernel("matmul", function, arguments, **{**scratch, **fields})


def product() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float[3, 5] x, float[5, 4] w) => (float[3, 4] y) { y = MatMul(x, w) }"
    )


def compiled(folder: Path, model: onnx.ModelProto, own: Library) -> None:
    """What the library computes alone is what ONNX Runtime computes."""
    report = byoc.compile(model, folder / "m.so", libraries=[own]).report
    assert not report.left and [use.library for use in report.kernels] == ["own"]
    draw = np.random.default_rng(0)
    given = {
        value.name: draw.standard_normal(
            [dim.dim_value for dim in value.type.tensor_type.shape.dim], np.float32
        )
        for value in model.graph.input
    }
    found = byoc.load(folder / "m.so").run(given)
    assert_agrees(found, onnxruntime_outputs(model, given))


def test_scratch_memory_is_what_the_function_makes_of_it(tmp_path: Path) -> None:
    compiled(tmp_path, product(), library(tmp_path, kernel()))


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        ("own_product", ("lhs", "rhs", "scratch", "m", "output", "n", "k"), "own_product"),
        ("own_hidden", ("lhs", "rhs", "output", 0.5, "m", "n", "k"), "own_hidden"),
    ],
)
def test_a_call_that_fits_no_prototype_is_refused(
    function: str, arguments: tuple, said: str, tmp_path: Path
) -> None:
    own = library(tmp_path, kernel(function, arguments))
    with pytest.raises(CodegenError, match=f"code.o: .*{said}"):
        byoc.compile(product(), tmp_path / "m.so", libraries=[own])
    assert not (tmp_path / "m.so").exists()


@pytest.mark.parametrize("shape", ["1, 1, 1, 9", "1, 1, 7, 9", "1, 4, 1, 9", "1, 4, 7, 9"])
def test_a_mask_is_repeated_where_its_extents_are_told(shape: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        f"g (float[1,4,7,16] q, float[1,4,9,16] k, float[1,4,9,16] v, float[{shape}] mask)"
        " => (float[1,4,7,16] y) { t = Transpose<perm = [0, 1, 3, 2]>(k) s = MatMul(q, t)"
        " f = Constant<value_float = 0.25>() a = Mul(s, f) b = Add(a, mask)"
        " p = Softmax<axis = -1>(b) y = MatMul(p, v) }"
    )
    told = (*ATTENTION, "scale", "mask.1", "mask.2")
    compiled(tmp_path, model, library(tmp_path, Kernel("attention", "own_attention", told)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"arguments": "lhs"}, "arguments is 'lhs'; need a tuple"),
        ({"epilogue": "bias"}, "epilogue is 'bias'; need a tuple"),
        ({"pack": {"rhs": None}}, "need a function for each role"),
        ({"dtypes": {"lhs": np.float32}}, "need a name for each role, one of float32"),
        ({"layouts": "NHWC"}, "layouts is 'NHWC'; need a dictionary"),
        ({"supports": "no"}, "supports is 'no'; need a function of a node"),
        ({"scratch": -4}, "scratch is -4; need a number of bytes"),
    ],
)
def test_fields_of_a_kernel(fields: dict, said: str) -> None:
    with pytest.raises(LibraryError, match=f"kernel for matmul: .*{said}"):
        Kernel(**{"op": "matmul", "function": "f", "arguments": PRODUCT, **fields})


@pytest.mark.parametrize("nbytes", [-1, 4.5, None, "64"])
def test_scratch_that_is_no_number_of_bytes(nbytes: object, tmp_path: Path) -> None:
    own = library(tmp_path, kernel(scratch=lambda node: nbytes))
    with pytest.raises(LibraryError, match=f"scratch gave {nbytes!r}; need a number of bytes"):
        byoc.compile(product(), tmp_path / "m.so", libraries=[own])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Link(headers="own.h"), "headers is 'own.h'; need a tuple"),
        (lambda: Link(sources=Path("own.c")), "sources is .*; need a tuple"),
        (lambda: Link(cflags=(3,)), "3 among the cflags; need texts"),
        (lambda: table(link=None), "link is None; need a Link"),
        (lambda: table(link=lambda: 3).link(), "link is 3; need a Link"),
        (lambda: table(kernels=None), "kernels is None; need a list of Kernel"),
        (lambda: table(operators=["x"]), "need a list of Operator"),
        (lambda: table(threads="set"), r"threads is 'set'; need Threads\(set, get\)"),
        (lambda: table(version=2), "version is 2; need a text"),
    ],
)
def test_fields_of_a_library(make: Callable[[], object], said: str) -> None:
    with pytest.raises(LibraryError, match=said):
        make()


def table(**fields) -> Library:
    return Library("own", **{"version": "1", "abi": 1, "link": Link(), "kernels": [], **fields})
