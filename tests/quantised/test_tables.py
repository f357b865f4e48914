"""Products of rows of quantised tables: all scales are constants."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import byoc.frontends.onnx.backend as backend
from tests.reference import assert_agrees, onnxruntime_outputs

DRAW = np.random.default_rng(3)


def network(operator: str, scales: str, signed: bool) -> onnx.ModelProto:
    """Words, rows of a table, a product of integers, floats: as ``quantize_dynamic`` has it."""
    image, each = operator == "ConvInteger", scales == "each channel"
    kind = np.int8 if signed else np.uint8
    weight = DRAW.integers(-90, 90, (6, 8, 3) if image else (8, 6)).astype(np.int8)
    factor = DRAW.uniform(0.01, 0.02, 6 if each else ()).astype(np.float32)
    if image and each:
        factor = factor.reshape(1, 6, 1)
    weights = {
        "table": DRAW.integers(0, 120, (30, 8)).astype(kind),
        "zero": np.array(7, kind),
        "w": weight,
        "one_scale": np.array(0.03, np.float32),
        "scale" if scales == "folded" else "other_scale": factor,
        "c": DRAW.standard_normal((1, 6, 1) if image else 6).astype(np.float32),
    }
    node = helper.make_node
    nodes = [node("Gather", ["table", "i"], ["rows"])]
    if image:
        nodes.append(node("Transpose", ["rows"], ["lines"], perm=[0, 2, 1]))
    read = ["lines" if image else "rows", "w", "zero"]
    nodes += [
        node(operator, read, ["sums"], **({"pads": [1, 1]} if image else {})),
        node("Cast", ["sums"], ["floats"], to=TensorProto.FLOAT),
    ]
    if scales != "folded":
        nodes.append(node("Mul", ["one_scale", "other_scale"], ["scale"]))
    nodes += [node("Mul", ["floats", "scale"], ["m"]), node("Add", ["m", "c"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "table",
        [helper.make_tensor_value_info("i", TensorProto.INT64, ["n", "t"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("operator", ["MatMulInteger", "ConvInteger"])
@pytest.mark.parametrize(
    ("scales", "signed"), [("one", False), ("folded", True), ("each channel", False)]
)
def test_rows_of_a_quantised_table(operator: str, scales: str, signed: bool) -> None:
    model = network(operator, scales, signed)
    rep = backend.prepare(model, min_bytes=0)
    for shape in ((2, 5), (1, 1)):
        inputs = {"i": DRAW.integers(0, 30, shape)}
        (found,) = rep.run(inputs)
        assert rep.report.left == () and len(rep.report.regions) == 1
        assert any("int8" in use.algorithm for use in rep.report.kernels)
        assert_agrees({"y": found}, onnxruntime_outputs(model, inputs))
