"""Door 10: a region of this project, the reference for the others.

Shows: nothing is written by hand: the partitioner finds what kernels can run, RunCodegen turns it
into one packed function per region, and the exported library holds kernels and packed weights.
"""

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

import byoc
from build import FOLDER, run_fresh

draw = np.random.default_rng(1)
weight = draw.standard_normal((8, 3, 3, 3), dtype=np.float32)
image = draw.standard_normal((1, 3, 16, 16), dtype=np.float32)

# 1. A network of Relax; ONNX files and PyTorch models arrive at the same.
builder = relax.BlockBuilder()
x = relax.Var("x", relax.TensorType(image.shape, "float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        convolved = builder.emit(op.nn.conv2d(x, relax.const(weight), padding=1))
        y = builder.emit_output(op.nn.relu(convolved))
    builder.emit_func_output(y)

# 2. Convolution and ReLU become one call of one kernel.
module, report = byoc.partition_with_report(builder.get())
print(report.summary())
assert len(report.regions) == 1 and not report.left, report.summary()

# 3. TVM's own calls from here on; in another process it needs TVM's runtime and nothing else.
library = FOLDER / "region.so"
tvm.compile(relax.transform.RunCodegen()(module), "llvm").export_library(str(library))
padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
expected = np.maximum(np.einsum("nihwrq,oirq->nohw", windows, weight), 0)
np.testing.assert_allclose(run_fresh(library, image), expected, rtol=1e-4, atol=1e-4)
print("region in a fresh process: agrees")
