"""Door 1: a packed function written in Python, to look into compiled code.

Shows: a compiled Relax function that hands an intermediate result to Python, and the same for every
kernel of a module that was not prepared for it. For debugging: the library needs this process.
"""

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

seen = {}


# 1. Register it before the virtual machine is made: that is when names are looked up.
@tvm_ffi.register_global_func("doors.look")
def look(label, tensor):
    seen[label] = tensor.numpy()  # a copy; the memory will be used again
    print(f"{label}: {tensor.shape}, mean {seen[label].mean():.4f}, from inside compiled code")


# 2. A call with an effect belongs to an impure function, outside of dataflow blocks.
@I.ir_module(s_tir=True)
class WithLook:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 32), "float32")):
        hidden = R.matmul(x, w)
        _ = R.call_packed("doors.look", R.str("hidden"), hidden, ty_args=[R.Tuple])
        return R.nn.relu(hidden)


draw = np.random.default_rng(1)
x, w = (draw.standard_normal(shape, dtype=np.float32) for shape in ((4, 64), (64, 32)))
arguments = tvm.runtime.tensor(x), tvm.runtime.tensor(w)
machine = relax.VirtualMachine(tvm.compile(WithLook, "llvm"), tvm.cpu())
result = machine["main"](*arguments).numpy()
np.testing.assert_allclose(seen["hidden"], x @ w, rtol=1e-4, atol=1e-4)
np.testing.assert_allclose(result, np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)


# 3. Without a change to the module: the machine calls this before and after each kernel.
def watch(function, name, before, returned, *kernel_arguments):
    if not before and name in ("matmul", "relu"):
        look(f"after {name}", kernel_arguments[-1])


machine.set_instrument(watch)
machine["main"](*arguments)
np.testing.assert_array_equal(seen["after relu"], result)


# 4. What Python raises crosses the compiled code.
@tvm_ffi.register_global_func("doors.look", override=True)
def refuse(label, tensor):
    raise ValueError(f"{label} looks wrong")


machine = relax.VirtualMachine(tvm.compile(WithLook, "llvm"), tvm.cpu())
try:
    machine["main"](*arguments)
except ValueError as error:
    print(f"ValueError: {error}")
else:
    raise SystemExit("the error was lost")
