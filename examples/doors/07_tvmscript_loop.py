"""Door 7: a loop written by hand in TVMScript, compiled by TVM, beside a call of C.

Shows: one function that multiplies by ``doors_gemm`` (``gemm.c``) and normalises the rows in loops
of its own, spread over TVM's threads and vectorised.
"""

import numpy as np
import tvm
from tvm.script import ir as I
from tvm.script import tirx as T

from build import FOLDER, build, run_fresh

ROWS, COLUMNS, DEPTH = 64, 48, 32


@I.ir_module(s_tir=True)
class Scores:
    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((ROWS, DEPTH), "float32"),
        B: T.Buffer((DEPTH, COLUMNS), "float32"),
        C: T.Buffer((ROWS, COLUMNS), "float32"),
    ):
        with T.sblock("product"):
            T.reads(A[0:ROWS, 0:DEPTH], B[0:DEPTH, 0:COLUMNS])
            T.writes(C[0:ROWS, 0:COLUMNS])
            status: T.let[T.int32] = T.call_extern(
                "int32", "doors_gemm", A.access_ptr("r"), DEPTH, B.access_ptr("r"), COLUMNS,
                C.access_ptr("w"), COLUMNS, ROWS, COLUMNS, DEPTH, 0,
            )  # fmt: skip
            assert status == 0, "doors_gemm failed"
        # What the loops say is what TVM compiles: order, threads and vectors are chosen here.
        for i in T.parallel(ROWS):
            with T.sblock("softmax"):
                row = T.axis.spatial(ROWS, i)
                T.reads(C[row, 0:COLUMNS])
                T.writes(C[row, 0:COLUMNS])
                largest = T.sblock_alloc_buffer((1,), "float32")
                total = T.sblock_alloc_buffer((1,), "float32")
                largest[0] = C[row, 0]
                for j in range(1, COLUMNS):
                    largest[0] = T.max(largest[0], C[row, j])
                total[0] = T.float32(0)
                for j in range(COLUMNS):
                    C[row, j] = T.exp(C[row, j] - largest[0])
                    total[0] = total[0] + C[row, j]
                for j in T.vectorized(COLUMNS):
                    C[row, j] = C[row, j] / total[0]


library = FOLDER / "scores.so"
compiled = tvm.compile(Scores, "llvm")
compiled.export_library(str(library), addons=[str(build("gemm.c", shared=False))])

draw = np.random.default_rng(1)
a = draw.standard_normal((ROWS, DEPTH), dtype=np.float32)
b = draw.standard_normal((DEPTH, COLUMNS), dtype=np.float32)
powers = np.exp(a @ b - (a @ b).max(axis=1, keepdims=True))
expected = powers / powers.sum(axis=1, keepdims=True)
found = run_fresh(library, a, b, np.empty((ROWS, COLUMNS), np.float32))
np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
print(f"C for {ROWS} x {COLUMNS} x {DEPTH}, a loop of TVM for the softmax: agrees")
