"""Networks for the tests of the report: hostile names, and as large as one likes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: Names that would break a page, a Graphviz file, a terminal or a C comment if printed raw.
HOSTILE = (
    '</script><script>throw new Error("injected")</script>',
    "<img src=x onerror=alert(1)>",
    'quote"back\\slash',
    "two\nlines */ // {{ 7*7 }}",
    "[red]markup[/red] &lt; \u2028 \x1b[31m",
    "Größe名前",
)


def model_of(
    nodes: list[onnx.NodeProto], shape: list[int], output: str, weights: dict[str, np.ndarray]
) -> onnx.ModelProto:
    """A model of one input ``x`` and one output, both of this shape."""
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def hostile_model() -> onnx.ModelProto:
    """A product, and a sigmoid that tests leave to TVM, for each hostile name."""
    weight = np.random.default_rng(0).standard_normal((8, 8), dtype=np.float32)
    nodes, value = [], "x"
    for index, name in enumerate(HOSTILE):
        for kind, inputs in (("MatMul", [value, "w"]), ("Sigmoid", [f"MatMul{index}"])):
            nodes.append(helper.make_node(kind, inputs, [f"{kind}{index}"], name=f"{kind} {name}"))
        value = f"Sigmoid{index}"
    return model_of(nodes, [4, 8], value, {"w": weight})


def residual_model(blocks: int) -> onnx.ModelProto:
    """Blocks of six operators in two branches that meet; one in ten has a Softmax in it."""
    draw = np.random.default_rng(0)
    weights = {name: draw.standard_normal((16, 16), dtype=np.float32) for name in ("v", "w")}
    nodes, value = [], "x"
    for index in range(blocks):
        kind = "Softmax" if index % 10 == 9 else "Sigmoid"
        chain = [
            ("MatMul", [value, "w"], "a"),
            ("Relu", ["a"], "b"),
            ("MatMul", ["b", "w"], "c"),
            ("MatMul", [value, "v"], "d"),
            (kind, ["d"], "e"),
            ("Mul", ["c", "e"], "f"),
        ]
        for op, inputs, output in chain:
            named = [name if name in (value, "v", "w") else f"{name}{index}" for name in inputs]
            node = helper.make_node(op, named, [f"{output}{index}"], name=f"/block{index}/{op}")
            nodes.append(node)
        value = f"f{index}"
    return model_of(nodes, [4, 16], value, weights)
