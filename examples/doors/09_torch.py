"""Door 9: PyTorch tensors into compiled code and out of it through DLPack, without a copy.

Shows: the addresses that a C kernel in the middle of the code sees are those of PyTorch's tensors,
for inputs, for outputs that TVM allocates, and for outputs that PyTorch allocated.
"""

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from build import build

try:
    import torch
except ModuleNotFoundError:
    print("skipped: PyTorch is not installed (pip install torch)")
    raise SystemExit(0) from None

tvm_ffi.load_module(build("scale.c", shared=True))
seen = []


@tvm_ffi.register_global_func("doors.address")
def address(tensor):
    seen.append(tensor.data_ptr())


@I.ir_module(s_tir=True)
class Double:
    @R.function(pure=False)
    def main(x: R.Tensor((8, 16), "float32")):
        _ = R.call_packed("doors.address", x, ty_args=[R.Tuple])
        y = R.call_dps_packed(
            "doors.scale", (x, R.prim_value(2.0)), out_ty=R.Tensor((8, 16), "float32")
        )
        _1 = R.call_packed("doors.address", y, ty_args=[R.Tuple])
        return y


main = relax.VirtualMachine(tvm.compile(Double, "llvm"), tvm.cpu())["main"]
x = torch.from_numpy(np.random.default_rng(1).standard_normal((8, 16), dtype=np.float32))

# 1. A PyTorch tensor as it is: what comes back is one as well.
y = main(x)
assert isinstance(y, torch.Tensor) and torch.equal(y, 2 * x)
assert seen == [x.data_ptr(), y.data_ptr()], seen
print("PyTorch in, PyTorch out: the kernel saw both addresses")

# 2. By name: a TVM tensor on PyTorch's memory, and back. This form insists on 64-byte alignment.
aligned = torch.empty(8, 16).copy_(x)
z = main(tvm.runtime.from_dlpack(aligned))
back = torch.from_dlpack(z)
assert torch.equal(back, 2 * x)
assert seen[2:] == [aligned.data_ptr(), back.data_ptr()] and z.data_ptr() == back.data_ptr()
print("tvm.runtime.from_dlpack, torch.from_dlpack: the same memory")

# 3. PyTorch allocates the output, here 16 columns of 32: strides reach a packed function as well.
wide = torch.zeros(8, 32)
tvm_ffi.get_global_func("doors.scale")(x, 3.0, wide[:, 16:])
assert torch.equal(wide[:, 16:], 3 * x) and not wide[:, :16].any()
print("a slice of a PyTorch tensor was filled in place")

# 4. It is one memory: what PyTorch writes later, TVM sees.
shared = tvm.runtime.from_dlpack(aligned)
aligned.fill_(7)
assert (shared.numpy() == 7).all()

# 5. What compiled code cannot take is refused, not copied in silence.
try:
    tvm.runtime.from_dlpack(wide[:, 16:])
except RuntimeError as error:
    print(f"a slice as a TVM tensor: {error}")
    assert "not contiguous" in str(error)
else:
    raise SystemExit("a slice was taken")
