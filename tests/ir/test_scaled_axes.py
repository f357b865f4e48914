"""Open axes that are scaled by a number for each element, or split to parts of known sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import byoc
from byoc.errors import ImportFailure
from tests.reference import assert_agrees, onnxruntime_outputs

#: Opset, node, shapes of its constants, and a shape of the input.
FORMS = {
    "layer": (17, "LayerNormalization (x, a, b)", [(8,), (8,)], (2, 3, 8)),
    "layer of two axes": (17, "LayerNormalization <axis = 1> (x, a)", [(4, 8)], (2, 4, 8)),
    "rms": (23, "RMSNormalization (x, a)", [(8,)], (2, 3, 8)),
    "instance": (17, "InstanceNormalization (x, a, b)", [(8,), (8,)], (2, 8, 5, 6)),
    "group": (21, "GroupNormalization <num_groups = 4> (x, a, b)", [(8,), (8,)], (2, 8, 5, 6)),
    "quantise": (13, "QuantizeLinear <axis = 1> (x, a)", [(8,)], (2, 8, 5, 6)),
}


def model_of(name: str) -> onnx.ModelProto:
    opset, node, constants, shape = FORMS[name]
    dims = ", ".join(f"d{place}" for place in range(len(shape)))
    kind = "uint8" if "Quantize" in node else "float"
    model: onnx.ModelProto = parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : {opset}]>
        scaled (float[{dims}] x) => ({kind}[{dims}] y) {{ y = {node} }}"""
    )
    for letter, extents in zip("ab", constants, strict=False):
        value = np.random.default_rng(len(letter)).uniform(0.5, 1.5, extents).astype("float32")
        model.graph.initializer.append(numpy_helper.from_array(value, letter))
    return model


@pytest.mark.parametrize("name", FORMS)
def test_is_as_long_as_its_scale(name: str, tmp_path: Path) -> None:
    """At two sizes of what stays open, in one region."""
    model, shape = model_of(name), FORMS[name][3]
    made = byoc.compile(model, tmp_path / "model.so", min_bytes=0)
    assert len(made.report.regions) == 1
    assert not made.report.left
    with byoc.load(made.path) as library:
        for batch in (2, 5):
            x = np.random.default_rng(batch).standard_normal((batch, *shape[1:])).astype("float32")
            assert_agrees(library.run({"x": x}), onnxruntime_outputs(model, {"x": x}))


@pytest.mark.parametrize("opset", [11, 17])
def test_is_as_long_as_its_parts(opset: int, tmp_path: Path) -> None:
    """With a name that was given it is refused: the last part was as long as the rest, unasked."""
    sizes = ("<axis = 2, split = [3, 5]> (x)", "<axis = 2> (x, sizes)")[opset > 12]
    model: onnx.ModelProto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : {opset}]>
        parts (float[b, s, f] x) => (float[b, s, 3] y, float[b, s, 5] z)
        <int64[2] sizes = {{3, 5}}> {{ u, z = Split {sizes} y = Relu (u) }}"""
    )
    with pytest.raises(ImportFailure, match="Split pairs f and 8 elements; need equally many"):
        byoc.compile(model, tmp_path / "model.so", {"x": ["b", "s", "f"]})
    made = byoc.compile(model, tmp_path / "model.so", min_bytes=0)
    assert len(made.report.regions) == 1
    assert not made.report.left
    with byoc.load(made.path) as library:
        for shape in ((2, 3, 8), (5, 1, 8)):
            x = np.random.default_rng(0).standard_normal(shape).astype("float32")
            assert_agrees(library.run({"x": x}), onnxruntime_outputs(model, {"x": x}))
