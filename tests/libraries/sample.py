"""A kernel library for tests: one matmul in C, linked in each of the ways that there are."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from codegen_cc.libraries import LIBRARY_ABI, Link, Threads
from codegen_cc.link.toolchain import compiler
from codegen_cc.node import Node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.region.graph import RegionNode

HEADER = """\
#include <stdint.h>
typedef struct { int64_t calls; } sample_state;
int sample_matmul(sample_state* state, const float* a, const float* b, float* y, int64_t m,
                  int64_t n, int64_t k);
const char* sample_text(int status);
void sample_set_threads(int threads);
int sample_get_threads(void);
"""

#: Fails where m is 13; ``state`` is its own for each call site, or the first call would not be 1.
SOURCE = """\
#include "sample.h"
static int threads_now;
int sample_matmul(sample_state* state, const float* a, const float* b, float* y, int64_t m,
                  int64_t n, int64_t k) {
  if (__atomic_add_fetch(&state->calls, 1, __ATOMIC_RELAXED) < 1 || m == 13) return 7;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += a[i * k + p] * b[p * n + j];
      y[i * n + j] = sum;
    }
  }
  return 0;
}
const char* sample_text(int status) { return status == 7 ? "thirteen rows" : "unknown"; }
void sample_set_threads(int threads) { threads_now = threads; }
int sample_get_threads(void) { return threads_now + EXTRA_THREADS; }
"""

WAYS = ("source", "archive", "shared")


@dataclass
class SampleLibrary:
    """``sample``, built in a folder; ``function`` may name one that does not exist."""

    folder: Path
    way: str
    function: str = "sample_matmul"
    extra_threads: int = 0
    name: str = "sample"
    version: str = "2.1"
    abi: int = LIBRARY_ABI
    status_text: str | None = "sample_text"
    threads: Threads | None = field(
        default_factory=lambda: Threads("sample_set_threads", "sample_get_threads")
    )

    def __post_init__(self) -> None:
        (self.folder / "sample.h").write_text(HEADER)
        (self.folder / "sample.c").write_text(SOURCE)
        flags = ["-O1", "-fPIC", *self._flags(), str(self.folder / "sample.c")]
        if self.way == "shared":
            command = [*compiler(), "-shared", *flags, "-o", str(self.folder / "libsample.so")]
            subprocess.run(command, check=True)
        elif self.way == "archive":
            command = [*compiler(), "-c", *flags, "-o", str(self.folder / "sample.o")]
            subprocess.run(command, check=True)

    def _flags(self) -> tuple[str, ...]:
        return (f"-DEXTRA_THREADS={self.extra_threads}", f"-I{self.folder}")

    def supports(self, node: Node) -> str | None:
        """Plain products of two matrices of float32."""
        if node.op != "matmul" or node.epilogue:
            return f"{node.composite}; need a plain matmul"
        if node.dtype != "float32":
            return f"result has dtype {node.dtype}; need float32"
        rank = len(node.operand("lhs").shape)
        return None if rank == 2 else f"rank {rank}; need 2"

    def lower(self, node: RegionNode, builder: PlanBuilder) -> None:
        """One call."""
        a, b = (builder.dense(builder.tensor(value)) for value in node.inputs)
        y = builder.space(node.node.shape, node.node.dtype)
        sizes = [*a.shape[:1], *b.shape[1:], *b.shape[:1]]
        arguments = [builder.state("sample_state"), a, b, y, *sizes]
        builder.call(self.function, arguments, y, f"sample: {list(a.shape)} x {list(b.shape)}")
        builder.place(node.output, y)

    def link(self) -> Link:
        """As ``way`` says."""
        return Link(
            headers=("sample.h",),
            include_dirs=(self.folder,),
            sources=(self.folder / "sample.c",) * (self.way == "source"),
            archives=(self.folder / "sample.o",) * (self.way == "archive"),
            shared=(self.folder / "libsample.so",) * (self.way == "shared"),
            cflags=self._flags(),
        )

    def algorithm(self, node: Node) -> str:
        """Always the same."""
        del node
        return "triple loop"

    def cost(self, node: Node) -> float | None:
        """A guess of 1 GFLOP/s."""
        return 2e-9 * float(node.macs)


def two_products(rows: int = 5) -> onnx.ModelProto:
    """``y = relu(x w0) w1`` with nodes ``head/first``, ``relu`` and ``tail/second``."""
    random = np.random.default_rng(3)
    weights = [random.standard_normal(shape, dtype=np.float32) for shape in ((32, 16), (16, 8))]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], name="head/first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MatMul", ["b", "w1"], ["y"], name="tail/second"),
    ]
    graph = helper.make_graph(
        nodes,
        "two_products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 8])],
        [numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
