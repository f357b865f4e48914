"""Door 2: packed functions in C (``scale.c``) and C++ (``scale.cc``), loaded from a ``.so``.

Shows: loading registers them by name; Python, Relax and TIR then call them alike. TVM is not
rebuilt, and a model's library does not contain them: the process that runs it must load them first.
"""

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from build import build

# 1. load_module keeps the library in the process for good, as its functions are in a global table.
for source in ("scale.c", "scale.cc"):
    tvm_ffi.load_module(build(source, shared=True))

# 2. From Python: arrays pass without a copy.
x = np.random.default_rng(1).standard_normal((8, 16), dtype=np.float32)
for name in ("doors.scale", "doors.scale_cpp"):
    y = np.zeros_like(x)
    tvm_ffi.get_global_func(name)(x, 2.0, y)
    np.testing.assert_array_equal(y, 2 * x)
    print(f"{name} from Python: agrees")


# 3. From Relax. call_dps_packed: TVM allocates the output and passes it last. call_packed: the
# function gets what is written, here the output that it shall fill.
@I.ir_module(s_tir=True)
class Chain:
    @R.function(pure=False)
    def main(x: R.Tensor((8, 16), "float32")):
        scaled = R.call_dps_packed(
            "doors.scale", (x, R.prim_value(2.0)), out_ty=R.Tensor((8, 16), "float32")
        )
        _ = R.call_packed("doors.scale_cpp", scaled, R.prim_value(3.0), scaled, ty_args=[R.Tuple])
        return scaled


machine = relax.VirtualMachine(tvm.compile(Chain, "llvm"), tvm.cpu())
np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(x)).numpy(), 6 * x)
print("call_dps_packed and call_packed from Relax: agree")

# 4. Errors cross the door as well: ours, and in C++ those of TVM's FFI about argument types.
for name, arguments, expected in (
    ("doors.scale", (x, 2.0, x[:4]), "differ in shape"),
    ("doors.scale_cpp", (x[:, ::2], 2.0, x[:, ::2]), "need contiguous"),
    ("doors.scale_cpp", (x, "two", x), "Expected `float`"),
):
    try:
        tvm_ffi.get_global_func(name)(*arguments)
    except (TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
        assert expected in str(error), error
    else:
        raise SystemExit(f"{name} took {expected}")
