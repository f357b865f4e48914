"""Reshape before opset 5, whose shape is an attribute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import byoc
from tests.reference import assert_agrees, onnxruntime_outputs

TEXT = """<ir_version: 3, opset_import: ["" : {opset}]>
old (float[n, 3, {side}, 4] x) => (float[n, columns] y) {{
    low = Softplus (x)
    y = Reshape <shape = {shape}> (low)
}}"""


@pytest.mark.parametrize(("side", "shape"), [("2", "[0, -1]"), ("2", "[-1, 8]"), ("h", "[0, -1]")])
@pytest.mark.parametrize("opset", [1, 4])
def test_shape_is_an_attribute(opset: int, side: str, shape: str, tmp_path: Path) -> None:
    """At two sizes of the open axes; one region holds all."""
    model: onnx.ModelProto = parser.parse_model(TEXT.format(opset=opset, side=side, shape=shape))
    made = byoc.compile(model, tmp_path / "model.so", min_bytes=0)
    assert len(made.report.regions) == 1
    assert not made.report.left
    with byoc.load(made.path) as library:
        for batch in (2, 5):
            x = np.random.default_rng(batch).standard_normal((batch, 3, 2, 4)).astype("float32")
            assert_agrees(library.run({"x": x}), onnxruntime_outputs(model, {"x": x}))
