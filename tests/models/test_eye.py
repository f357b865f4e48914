"""EyeLike: of sizes that are counted at the run, and of fixed ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import byoc
from tests.ir.graphs import onnx_model, random
from tests.reference import assert_agrees, onnxruntime_outputs


@pytest.mark.filterwarnings("ignore::byoc.AxesNote")
@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("shape", [("n", "m"), ("n", 6), (5, 7)])
def test_agree_with_onnxruntime(opset: int, shape: tuple[int | str, ...], tmp_path: Path) -> None:
    nodes, outputs = [helper.make_node("Relu", ["x"], ["a"])], []
    for k in (0, 1, -2, 9):
        nodes += [
            helper.make_node("EyeLike", ["a"], [f"e{k}"], k=k),
            helper.make_node("Sub", ["a", f"e{k}"], [f"y{k}"]),
            helper.make_node("EyeLike", ["a"], [f"i{k}"], k=k, dtype=TensorProto.INT64),
        ]
        outputs += [f"y{k}", f"i{k}"]
    model = onnx_model(nodes, {"x": list(shape)}, outputs, opset=opset)
    for value in model.graph.output[1::2]:
        value.type.tensor_type.elem_type = TensorProto.INT64
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert made.report.left == () and len(made.report.regions) == 1
    with byoc.load(made.path) as loaded:
        for sizes in ((5, 7), (5, 6), (1, 6)) if shape[0] == "n" else ((5, 7),):
            if shape[1] in ("m", sizes[1]):
                inputs = {"x": random(*sizes)}
                found, wanted = loaded.run(inputs), onnxruntime_outputs(model, inputs)
                assert all(found[name].dtype == np.int64 for name in outputs[1::2])
                assert_agrees(found, wanted)
