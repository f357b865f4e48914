"""``x[mask] = value`` as PyTorch's exporter writes it: places that are counted, and one value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import byoc
from tests.reference import assert_agrees, onnxruntime_outputs

#: The frames of a mask, all of whose elements become ``value``; ``counted`` says how many.
STORED = """<ir_version: 8, opset_import: ["": 18]>
    g (float[b, t, 16] x, bool[b, t] mask) => (float[b, t, 16] y)
    <int64[1] last = {{-1}}, int64[1] sixteen = {{16}}, float{value}> {{
        {reach}
        shape = Shape(x)
        wide = Expand(frames, shape)
        found = NonZero(wide)
        places = Transpose<perm = [1, 0]>(found)
        flat = Reshape(reach, last)
        ones = Cast<to = 7>(flat)
        number = ReduceSum<keepdims = 1>(ones)
        {counted}
        many = Expand(value, counted)
        updates = Reshape(many, last)
        stored = ScatterND(x, places, updates)
        y = Exp(stored)
    }}"""

FRAMES = "frames = Unsqueeze(mask, last)\n"
#: What is stored: one number in each element, one in all by a wide mask, a row in each frame.
FORMS = {
    "number": (
        " value = {2.5}",
        FRAMES + "repeats = Constant<value = int64[3] {1, 1, 16}>()\nreach = Tile(frames, repeats)",
        "counted = Identity(number)",
    ),
    "number of one axis": (
        "[1] value = {2.5}",
        FRAMES + "reach = Identity(mask)",
        "counted = Concat<axis = 0>(number, sixteen)",
    ),
    "row": (
        "[16] value = {" + ", ".join(f"{n}.5" for n in range(16)) + "}",
        FRAMES + "reach = Identity(mask)",
        "counted = Concat<axis = 0>(number, sixteen)",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_value_in_places_of_a_mask_is_one_region(form: str, tmp_path: Path) -> None:
    """Nothing is counted, and any batch and length are taken."""
    value, reach, counted = FORMS[form]
    model = parser.parse_model(STORED.format(value=value, reach=reach, counted=counted))
    with pytest.warns(byoc.AxesNote):
        done = byoc.compile(model, tmp_path / "model.so")
    assert len(done.report.regions) == 1 and not done.report.left
    net, draw = byoc.load(tmp_path / "model.so"), np.random.default_rng(0)
    for batch, length in ((1, 1), (2, 7), (3, 16)):
        x = draw.standard_normal((batch, length, 16)).astype("f4")
        for mask in (draw.random((batch, length)) < 0.5, np.zeros((batch, length), bool)):
            given = {"x": x, "mask": mask}
            assert_agrees(net.run(given), onnxruntime_outputs(model, given))


#: As many values as the mask picks, which one choice cannot tell.
SEVERAL = """<ir_version: 8, opset_import: ["": 18]>
    g (float[6] x) => (float[6] y)
    <bool[6] mask = {0, 1, 0, 1, 1, 0}, float[3] values = {2.5, 3.5, 4.5}, int64[1] last = {-1}> {
        shape = Shape(x)
        wide = Expand(mask, shape)
        found = NonZero(wide)
        places = Transpose<perm = [1, 0]>(found)
        number = Constant<value = int64[1] {3}>()
        many = Expand(values, number)
        updates = Reshape(many, last)
        y = ScatterND(x, places, updates)
    }"""


def test_values_of_each_place_stay_apart(tmp_path: Path) -> None:
    model = parser.parse_model(SEVERAL)
    byoc.compile(model, tmp_path / "model.so")
    given = {"x": np.arange(6, dtype="f4")}
    assert_agrees(byoc.load(tmp_path / "model.so").run(given), onnxruntime_outputs(model, given))
