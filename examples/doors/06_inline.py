"""Door 6: kernels that become part of the exported library, in four ways.

Shows: one ``.so`` that a fresh process runs with TVM's runtime and nothing else: an object linked
as an addon, an object as a module of TVM, C source with a constant, and LLVM code.
"""

import shutil
import subprocess

import numpy as np
import tvm
import tvm_ffi
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from build import FOLDER, HERE, build, run_fresh


@I.ir_module(s_tir=True)
class Layer:
    @T.prim_func(s_tir=True)
    def product(
        A: T.Buffer((4, 32), "float32"),
        B: T.Buffer((32, 24), "float32"),
        C: T.Buffer((4, 24), "float32"),
    ):
        with T.sblock("gemm"):
            T.reads(A[0:4, 0:32], B[0:32, 0:24])
            T.writes(C[0:4, 0:24])
            status: T.let[T.int32] = T.call_extern(
                "int32", "doors_gemm", A.access_ptr("r"), 32, B.access_ptr("r"), 24,
                C.access_ptr("w"), 24, 4, 24, 32, 0,
            )  # fmt: skip
            assert status == 0, "doors_gemm failed"

    @R.function
    def main(x: R.Tensor((4, 32), "float32"), w: R.Tensor((32, 24), "float32")):
        cls = Layer
        with R.dataflow():
            y = R.call_tir(cls.product, (x, w), out_ty=R.Tensor((4, 24), "float32"))
            z = R.call_dps_packed("doors_add_bias", (y,), out_ty=R.Tensor((4, 24), "float32"))
            out = R.call_dps_packed("doors_relu", (z,), out_ty=R.Tensor((4, 24), "float32"))
            R.output(out)
        return out


draw = np.random.default_rng(1)
x, w, bias = (draw.standard_normal(s, dtype=np.float32) for s in ((4, 32), (32, 24), (24,)))
expected = np.maximum(x @ w + bias, 0)

# 1. A static library is a module; so is C source, which names its function and its constants. A
# code generator returns such modules; without one they are attributes of the Relax module.
built = build("06_static.c", shared=False)
relu = tvm.runtime.module.load_static_library(str(built), ["doors_relu"])
source = (HERE / "06_constant.c").read_text(encoding="ascii")
create = tvm_ffi.get_global_func("runtime.CSourceModuleCreate")
add_bias = create(source, "c", ["doors_add_bias"], ["bias"])
constants = {"bias": tvm.runtime.tensor(bias)}
layer = Layer.with_attrs({"external_mods": [relu, add_bias], "const_name_to_constant": constants})

# 2. A function that code calls by its C name is an addon.
library, gemm = FOLDER / "layer.so", build("gemm.c", shared=False)
tvm.compile(layer, "llvm").export_library(str(library), addons=[str(gemm)])
np.testing.assert_allclose(run_fresh(library, x, w), expected, rtol=1e-4, atol=1e-4)
print("addon, static object and C source with a constant: agree in a fresh process")

# 3. As LLVM code a kernel is inlined in earnest, and the executable runs without linking as well.
clang = shutil.which("clang")
if clang is None:
    print("LLVM code: skipped, as clang is not installed")
    raise SystemExit(0)
text = FOLDER / "gemm.ll"
command = [clang, "-O2", "-S", "-emit-llvm", str(HERE / "gemm.c"), "-o", str(text)]
subprocess.run(command, check=True)
product = Layer["product"]
inlined = product.with_body(
    tvm.tirx.AttrStmt(0, "pragma_import_llvm", text.read_text(encoding="utf-8"), product.body)
)
compiled = tvm.compile(inlined, "llvm")
assert "call i32 @doors_gemm" not in compiled.mod.inspect_source("ll"), "it was not inlined"
found = tvm.runtime.tensor(np.empty_like(expected))
compiled(tvm.runtime.tensor(x), tvm.runtime.tensor(w), found)
np.testing.assert_allclose(found.numpy(), x @ w, rtol=1e-4, atol=1e-4)
print("LLVM code: inlined, agrees")
