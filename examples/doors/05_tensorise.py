"""Door 5: a convolution whose loops TVM owns and whose inner GEMM is an external microkernel.

Shows: ``tensorize`` replaces three loops by ``doors_gemm`` (``gemm.c``), which gets pointers into
tiles of the padded image, the weight and the output, with their row strides; strides 1 and 2.
"""

import numpy as np
import tvm
from tvm import te, topi
from tvm.s_tir import Schedule, TensorIntrin
from tvm.script import tirx as T

from build import FOLDER, build, run_fresh

M, N, K = 7, 16, 8  # a tile: pixels of a row, output channels, input channels
SIZE, INPUTS, OUTPUTS, KERNEL = 14, 16, 32, 3


# 1. What the microkernel computes, and how it is called. For a convolution of stride `step`, rows
# of A are `step` pixels apart, so a tile covers `span` of them.
def intrinsic(step):
    span = step * (M - 1) + 1

    @T.prim_func(s_tir=True)
    def computes(a: T.handle, b: T.handle, c: T.handle):
        A = T.match_buffer(a, (span, K), "float32", offset_factor=1)
        B = T.match_buffer(b, (K, N), "float32", offset_factor=1)
        C = T.match_buffer(c, (M, N), "float32", offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:M, 0:N], A[0:span, 0:K], B[0:K, 0:N])
            T.writes(C[0:M, 0:N])
            for i, j, k in T.grid(M, N, K):
                with T.sblock("update"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    C[vi, vj] = C[vi, vj] + A[vi * step, vk] * B[vk, vj]

    @T.prim_func(s_tir=True)
    def calls(a: T.handle, b: T.handle, c: T.handle):
        a_row, b_row, c_row = T.int32(), T.int32(), T.int32()
        A = T.match_buffer(a, (span, K), "float32", offset_factor=1, strides=[a_row, 1])
        B = T.match_buffer(b, (K, N), "float32", offset_factor=1, strides=[b_row, 1])
        C = T.match_buffer(c, (M, N), "float32", offset_factor=1, strides=[c_row, 1])
        with T.sblock("root"):
            T.reads(C[0:M, 0:N], A[0:span, 0:K], B[0:K, 0:N])
            T.writes(C[0:M, 0:N])
            status: T.let[T.int32] = T.call_extern(
                "int32", "doors_gemm", A.access_ptr("r"), a_row * step, B.access_ptr("r"), b_row,
                C.access_ptr("rw"), c_row, M, N, K, 1,
            )  # fmt: skip
            assert status == 0, "doors_gemm failed"

    return computes, calls


# 2. The convolution, as TVM's operator library expresses it; padding is a loop nest of its own.
def convolution(step):
    image = te.placeholder((1, SIZE, SIZE, INPUTS), "float32", "image")
    weight = te.placeholder((KERNEL, KERNEL, INPUTS, OUTPUTS), "float32", "weight")
    out = topi.nn.conv2d_nhwc(image, weight, step, KERNEL // 2, dilation=1)
    return te.create_prim_func([image, weight, out])


# 3. Cut the loops into tiles, set the output to 0 first, and replace the innermost three.
def tensorise(step):
    TensorIntrin.register(f"doors.gemm_{step}", *intrinsic(step))
    schedule = Schedule(convolution(step))
    block = schedule.get_sblock("conv2d_nhwc")
    n, y, x, c, r, q, i = schedule.get_loops(block)
    x, pixels = schedule.split(x, [None, M])
    c, columns = schedule.split(c, [None, N])
    i, depth = schedule.split(i, [None, K])
    schedule.reorder(n, y, x, c, r, q, i, pixels, columns, depth)
    schedule.decompose_reduction(block, r)
    schedule.tensorize(pixels, f"doors.gemm_{step}")
    return schedule.mod


gemm = str(build("gemm.c", shared=False))
for step in (1, 2):
    module = tensorise(step)
    assert "doors_gemm" in module.script()
    library = FOLDER / f"conv{step}.so"
    tvm.compile(module, "llvm").export_library(str(library), addons=[gemm])
    draw = np.random.default_rng(step)
    image = draw.standard_normal((1, SIZE, SIZE, INPUTS), np.float32)
    weight = draw.standard_normal((KERNEL, KERNEL, INPUTS, OUTPUTS), np.float32)
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (KERNEL, KERNEL), axis=(1, 2))
    expected = np.einsum("nyxirq,rqic->nyxc", windows[:, ::step, ::step], weight)
    found = run_fresh(library, image, weight, np.zeros_like(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    print(f"stride {step}: rows of A are {step * INPUTS} elements apart; agrees in a fresh process")
