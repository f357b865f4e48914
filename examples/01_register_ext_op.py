"""Say which calls of an operator the kernels take, and teach them one that they do not know.

Shows: a predicate that narrows a row of the pattern table by shape and by a weight's values, and a
builder that widens the table by an operator that an existing kernel can compute.
"""

import numpy as np
from tvm import relax
from tvm.relax import op

import byoc
from byoc.ir.dataflow import dtype_of, shape_of
from byoc.patterns.registry import Candidate, Unfit
from codegen_cc import Node, Operand


# 1. Narrow: small images stay with TVM, and so do weights that are nearly all zero.
@byoc.register_ext_op("relax.nn.conv2d")
def worth_it(node, call):
    height, width = node.shape[2:]
    if height * width < 64:
        return f"image of {height}x{width}; need 64 pixels"
    weight = call.args[1].value.numpy()
    zeros = np.mean(weight == 0)
    return f"{100 * zeros:.0f} % of the weights are 0; need half of them" if zeros > 0.5 else None


# 2. Widen: x * x is a product, so the kernel of products can compute relax.square.
def square_as_product(call):
    (x,) = call.args
    if dtype_of(x) != "float32":
        raise Unfit(f"input has dtype {dtype_of(x)}; need float32")
    operands = tuple(Operand(role, shape_of(x), "float32") for role in ("lhs", "rhs"))
    node = Node("binary", operands, shape_of(x), "float32", {"kind": "mul"})
    return Candidate(node, (x, x))


byoc.register_ext_op("relax.square", build=square_as_product)


# ---------------------------------------------------------------- a module to try them on


def network():
    draw = np.random.default_rng(1)
    first, last = (draw.standard_normal((8, c, 3, 3), dtype=np.float32) for c in (3, 8))
    sparse = np.zeros((8, 8, 1, 1), np.float32)
    x = relax.Var("x", relax.TensorType([1, 3, 16, 16], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            large = builder.emit(op.nn.conv2d(x, relax.const(first), padding=1))
            squared = builder.emit(op.square(large))
            empty = builder.emit(op.nn.conv2d(squared, relax.const(sparse)))
            small = builder.emit(op.nn.conv2d(empty, relax.const(last), strides=4))
            result = builder.emit_output(small)
        builder.emit_func_output(result)
    return builder.get()


_, report = byoc.partition_with_report(network())
report.render()

byoc.unregister_ext_op("relax.nn.conv2d")
byoc.unregister_ext_op("relax.square")
