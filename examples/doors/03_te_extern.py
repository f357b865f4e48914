"""Door 3: ``te.extern``, an operator of TVM's tensor expressions that a packed function computes.

Shows: the external operator between two that TVM computes, its shape symbolic, compiled alone and
inside a Relax module. The code calls the function of door 2 by name, when it runs.
"""

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te, tirx

from build import build

tvm_ffi.load_module(build("scale.c", shared=True))


# 1. inputs and outputs are buffers, which call_packed passes as tensors.
def scale(x: te.Tensor, by: float) -> te.Tensor:
    return te.extern(
        x.shape,
        [x],
        lambda inputs, outputs: tirx.call_packed(
            "doors.scale", inputs[0], tirx.const(by, "float32"), outputs[0]
        ),
        name="scale",
        dtype=[x.dtype],
        # By default inputs may have an offset that nobody sets for a computed one: it is 0 here.
        in_buffers=[tirx.decl_buffer(x.shape, x.dtype, "x")],
    )


# 2. TVM's own operators before and after, in one function.
x = te.placeholder((te.var("rows"), 16), "float32", name="x")
root = te.compute(x.shape, lambda i, j: te.sqrt(x[i, j]), name="root")
scaled = scale(root, 3.0)
y = te.compute(x.shape, lambda i, j: scaled[i, j] + 1.0, name="y")
compiled = tvm.compile(te.create_prim_func([x, y]), "llvm")

given = np.random.default_rng(1).random((8, 16), dtype=np.float32)
expected = 3 * np.sqrt(given) + 1
found = tvm.runtime.tensor(np.empty_like(given))
compiled(tvm.runtime.tensor(given), found)
np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
print("te.extern between two operators of TVM: agrees")

# 3. The same operator in a Relax function, by emit_te.
builder = relax.BlockBuilder()
variable = relax.Var("x", relax.TensorType([tvm.ir.Var("rows", "int64"), 16], "float32"))
with builder.function("main", [variable]):
    with builder.dataflow():
        result = builder.emit_output(builder.emit_te(scale, variable, 0.5))
    builder.emit_func_output(result)
machine = relax.VirtualMachine(tvm.compile(builder.get(), "llvm"), tvm.cpu())
found = machine["main"](tvm.runtime.tensor(given))
np.testing.assert_array_equal(found.numpy(), given / 2)
print("emit_te in Relax, symbolic rows: agrees")
