"""Inputs that are cut to the length of another one, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import byoc
from tests.ir.graphs import onnx_model, random
from tests.reference import assert_agrees, onnxruntime_outputs

LAST = np.iinfo(np.int64).max
WEIGHTS = {name: np.array([value]) for name, value in {"zero": 0, "one": 1, "last": LAST}.items()}
CUT = [
    helper.make_node("Shape", ["y"], ["shape"]),
    helper.make_node("Slice", ["shape", "zero", "one"], ["rows"]),
    helper.make_node("Slice", ["x", "zero", "rows", "zero"], ["first"]),
    helper.make_node("Slice", ["x", "rows", "last", "zero"], ["others"]),
]
USES = {
    "added": [
        helper.make_node("Add", ["first", "y"], ["sum"]),
        helper.make_node("Concat", ["sum", "others"], ["z"], axis=0),
    ],
    "joined": [helper.make_node("Concat", ["first", "y"], ["z"], axis=1)],
    "attended": [  # examples with labels, and others that are told by them
        helper.make_node("Add", ["first", "y"], ["keys"]),
        helper.make_node("Transpose", ["keys"], ["columns"]),
        helper.make_node("MatMul", ["others", "columns"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"]),
        helper.make_node("MatMul", ["shares", "first"], ["z"]),
    ],
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.filterwarnings("ignore::byoc.AxesNote")
def test_rows_beyond_the_others(use: str, tmp_path: Path) -> None:
    nodes = [*CUT, *USES[use], helper.make_node("Tanh", ["z"], ["out"])]
    model = onnx_model(nodes, {"x": ["n", 5], "y": ["m", 5]}, ["out"], WEIGHTS, 15)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert made.report.left == () and len(made.report.regions) == 1
    shapes = {given.name: list(given.shape) for given in made.metadata.inputs}
    assert shapes == {"x": ["m+more", 5], "y": ["m", 5]}
    with byoc.load(made.path) as library:
        for rows, labels in ((20, 12), (9, 4), (7, 7)):
            inputs = {"x": random(rows, 5), "y": random(labels, 5)}
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))
            assert library._prepared._calls  # known sizes: no way through TVM's machine
        with pytest.raises(byoc.InputError, match=r"axis 0 is 5 and must be 6 or more"):
            library.run({"x": random(5, 5), "y": random(6, 5)})
