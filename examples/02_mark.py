"""Mark what may be offloaded; everything else stays with TVM.

Shows the four ways to mark bindings of a module: by operator, by a pattern over the graph, from
one binding to another, and by a function of your own. Marks of several calls add up.
"""

import numpy as np
from tvm import relax
from tvm.relax import op
from tvm.relax.dpl import is_op, wildcard

import byoc


def network():
    """Two layers (lv, lv1 and lv2, lv3 are each a product and a ReLU) and a softmax."""
    draw = np.random.default_rng(1)
    x = relax.Var("x", relax.TensorType([4, 32], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(2):
                weight = relax.const(draw.standard_normal((32, 32), dtype=np.float32))
                value = builder.emit(op.nn.relu(builder.emit(op.matmul(value, weight))))
            result = builder.emit_output(op.nn.softmax(value))
        builder.emit_func_output(result)
    return builder.get()


def show(what, module):
    _, report = byoc.partition_with_report(module)
    print(f"{what:30} {report.summary()}")
    return report


# 1. By operator: only matrix products, hence without the activations behind them.
show("operators", byoc.mark(network(), ops=["matmul"]))

# 2. By pattern: every product that a ReLU follows, with the ReLU.
pattern = is_op("relax.nn.relu")(is_op("relax.matmul")(wildcard(), wildcard()))
show("pattern", byoc.mark(network(), pattern=pattern))

# 3. From one binding to another, as mod.show() prints them: the second layer. Names of ONNX nodes
# serve as well if the module came from ONNX.
show("begin and end", byoc.mark(network(), begin="lv2", end="lv3"))

# 4. By a function of the binding; and once more, to add the softmax.
module = byoc.mark(network(), select=lambda binding: binding.var.name == "lv")
show("function", module)
show("function and operator", byoc.mark(module, ops=["softmax"]))
