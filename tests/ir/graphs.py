"""Small ONNX graphs and Relax modules for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import tvm
from onnx import helper, numpy_helper
from tvm import relax

from byoc.partition.prune import nodes_of


def onnx_model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int | str] | None],
    outputs: list[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of these nodes; fp32 inputs by name and shape, weights by name and value."""
    float32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, float32, s) for name, s in inputs.items()],
        [helper.make_tensor_value_info(name, float32, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return model


def refused_model() -> onnx.ModelProto:
    """A convolution, and a RoiAlign that is refused: TVM computes its mode otherwise."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("RoiAlign", ["c", "rois", "of"], ["y"], "roi", mode="max", output_width=3),
    ]
    weights = {
        "w": random(8, 8, 3, 3),
        "rois": np.array([[1, 2, 20, 30]], "float32"),
        "of": np.zeros(1, "int64"),
    }
    return onnx_model(nodes, {"x": [1, 8, 32, 32]}, ["y"], weights)


def relax_module(
    build: Callable[..., relax.Expr], *shapes: tuple[int, ...], name: str = "main"
) -> tvm.IRModule:
    """A module whose function is one dataflow block that ``build(emit, *inputs)`` fills."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(list(shape), "float32"))
        for i, shape in enumerate(shapes)
    ]
    with builder.function(name, params):
        with builder.dataflow():
            result = builder.emit_output(build(builder.emit, *params))
        builder.emit_func_output(result)
    return builder.get()


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Normal fp32 values."""
    return (np.random.RandomState(seed).randn(*shape) * scale).astype("float32")


def constant(values: object) -> relax.Expr:
    """An fp32 constant."""
    return relax.const(np.asarray(values, "float32"), "float32")


def operators(mod: tvm.IRModule, name: str = "main") -> list[str]:
    """Names of the operators that a function calls, in order."""
    return [
        str(binding.value.op.name)
        for block in mod[name].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call) and isinstance(binding.value.op, tvm.ir.Op)
    ]


def regions(mod: tvm.IRModule) -> dict[str, list[str]]:
    """Composite names by region, in order."""
    return {
        str(func.attrs["global_symbol"]): [node.composite for node in nodes_of(func)]
        for _, func in sorted(mod.functions.items(), key=lambda item: item[0].name_hint)
        if isinstance(func, relax.Function) and func.attrs and "Codegen" in func.attrs
    }
