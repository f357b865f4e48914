"""A gated layer whose products are of integers: the gate follows the product, not inside of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic

import byoc
from tests.quantised.nodes import Draw, onnxruntime_of


def gated(rows: int | str) -> onnx.ModelProto:
    """``(relu(x a) * (x b)) c``, as T5 and Llama have it."""
    draw, node = np.random.default_rng(3), helper.make_node
    weights = {"a": (32, 48), "b": (32, 48), "c": (48, 32)}
    tensors = [
        numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    nodes = [
        node("MatMul", ["x", "a"], ["up"]),
        node("Relu", ["up"], ["gate"]),
        node("MatMul", ["x", "b"], ["wide"]),
        node("Mul", ["gate", "wide"], ["product"]),
        node("MatMul", ["product", "c"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", 1, [2, rows, 32])
    y = helper.make_empty_tensor_value_info("y")
    opsets = [helper.make_opsetid("", 17)]
    graph = helper.make_graph(nodes, "gated", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("rows", [7, "n"])
def test_a_gate_of_integers_products(rows: int | str, tmp_path: Path) -> None:
    onnx.save(gated(rows), tmp_path / "plain.onnx")
    quantize_dynamic(tmp_path / "plain.onnx", tmp_path / "m.onnx")
    compiled = byoc.compile(tmp_path / "m.onnx", tmp_path / "m.so", min_bytes=0)
    assert len(compiled.report.regions) == 1 and compiled.report.left == ()
    kernels = {use.algorithm: use.nodes for use in compiled.report.kernels}
    assert kernels["matmul, int8"] == 3 and "matmul" not in kernels
    x = Draw(7).random.standard_normal((2, 7, 32)).astype(np.float32)
    (found,) = byoc.load(tmp_path / "m.so").run({"x": x}).values()
    (wanted,) = onnxruntime_of(onnx.load(tmp_path / "m.onnx"), x)
    # The last bits of a float may put an integer after it one step further.
    assert np.abs(found - wanted).max() <= 0.005 * np.ptp(wanted)
