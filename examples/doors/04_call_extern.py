"""Door 4: ``call_extern``, a plain C function (``gemm.c``) that compiled code calls with pointers.

Shows: no tensor, no name table, a direct call; a status that is not 0 raises; the object goes into
the exported library, which then runs in a process of its own.
"""

import numpy as np
import tvm
from tvm.script import tirx as T

from build import FOLDER, build, run_fresh


# 1. Pointers and integers as the C prototype has them: nobody checks that they agree with it.
@T.prim_func(s_tir=True)
def main(a: T.handle, b: T.handle, c: T.handle):
    m, c_row = T.int32(), T.int32()
    A = T.match_buffer(a, (m, 32), "float32")
    B = T.match_buffer(b, (32, 24), "float32")
    C = T.match_buffer(c, (m, 24), "float32", strides=[c_row, 1])
    with T.sblock("gemm"):
        T.reads(A[0:m, 0:32], B[0:32, 0:24])
        T.writes(C[0:m, 0:24])
        status: T.let[T.int32] = T.call_extern(
            "int32", "doors_gemm", A.access_ptr("r"), 32, B.access_ptr("r"), 24,
            C.access_ptr("w"), c_row, m, 24, 32, 0,
        )  # fmt: skip
        assert status == 0, "doors_gemm failed: rows of C overlap"


# 2. Link the object, then load the library. The executable itself must not be called: TVM's JIT
# does not know doors_gemm, and ends the process. The same holds for a library without the addon.
compiled = tvm.compile(main, "llvm")
library, without = FOLDER / "linked.so", FOLDER / "unlinked.so"
compiled.export_library(str(library), addons=[str(build("gemm.c", shared=False))])
compiled.export_library(str(without))
gemm = tvm.runtime.load_module(str(library))["main"]

draw = np.random.default_rng(1)
a, b = (draw.standard_normal(shape, dtype=np.float32) for shape in ((5, 32), (32, 24)))
tensors = [tvm.runtime.tensor(array) for array in (a, b, np.empty((5, 24), np.float32))]
gemm(*tensors)
np.testing.assert_allclose(tensors[-1].numpy(), a @ b, rtol=1e-4, atol=1e-4)
print("call_extern in this process: agrees")

# 3. What the C function returns, as an error: these rows of C lie on top of each other.
overlapping = np.lib.stride_tricks.as_strided(np.zeros(64, np.float32), (5, 24), (32, 4))
try:
    gemm(*tensors[:2], overlapping)
except RuntimeError as error:
    print(f"RuntimeError: {error}")
    assert "rows of C overlap" in str(error)
else:
    raise SystemExit("the status was ignored")

# 4. Another process, nothing preloaded: the kernel is inside. Without the addon, it is not.
found = run_fresh(library, a, b, np.empty((5, 24), np.float32))
np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-4)
print("call_extern in a fresh process: agrees")
try:
    run_fresh(without, a, b, np.empty((5, 24), np.float32))
except RuntimeError as error:
    print(f"without the addon: {error}")
    assert "undefined symbol: doors_gemm" in str(error)
else:
    raise SystemExit("doors_gemm was found without being linked")
