"""Overrule the partitioner: skip operators or nodes, keep to some, ask a predicate, demand more.

The same on the command line:

    byoc partition model.onnx --skip-op softmax --skip-node 'classifier*' --only matmul
    byoc compile model.onnx -o model.so --min-coverage 0.99
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import byoc
from byoc.errors import CoverageError
from byoc.frontends.onnx import import_onnx, prepare


def network():
    """matmul, ReLU and softmax, twice, with names as exporters write them."""
    draw = np.random.default_rng(1)
    nodes, weights, value = [], [], "x"
    for layer in ("encoder", "classifier"):
        weight = draw.standard_normal((32, 32), dtype=np.float32)
        weights.append(numpy_helper.from_array(weight, f"{layer}.weight"))
        for kind, inputs in (("MatMul", [f"{layer}.weight"]), ("Relu", []), ("Softmax", [])):
            name = f"/{layer}/{kind}"
            nodes.append(helper.make_node(kind, [value, *inputs], [f"{name}_output"], name=name))
            value = f"{name}_output"
    shape = [4, 32]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


module = import_onnx(prepare(network()))


def show(what, **rules):
    _, report = byoc.partition_with_report(module, **rules)
    print(f"{what:12} {report.summary()}")
    return report


show("all")
show("skip_ops", skip_ops=["softmax"])
show("skip_nodes", skip_nodes=["/classifier/*"])
show("only", only=["matmul"])

# None takes the call; a text is the reason why not, and the report shows it.
report = show(
    "predicate", predicate=lambda node, call: "kept for a test" if node.op == "softmax" else None
)
print({left.name: left.reason for left in report.left})

# What is demanded must hold, or the error lists what is in the way.
try:
    report.require(full=True)
except CoverageError as error:
    print(error)
