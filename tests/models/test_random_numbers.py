"""Random operators: no engine draws what another does, so what holds of them is tested."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import byoc
import byoc.frontends.onnx.backend as backend
from tests.ir.graphs import onnx_model, random

COUNT = 40_000


def test_moments_seeds_and_repeats() -> None:
    nodes = [
        helper.make_node("RandomNormal", [], ["a"], shape=[COUNT], mean=2.0, scale=3.0, seed=1.0),
        helper.make_node("RandomNormal", [], ["b"], shape=[COUNT], mean=2.0, scale=3.0, seed=1.0),
        helper.make_node("RandomNormal", [], ["c"], shape=[COUNT], mean=2.0, scale=3.0, seed=2.0),
        helper.make_node("RandomNormalLike", ["x"], ["d"], "first"),
        helper.make_node("RandomNormalLike", ["x"], ["e"], "second"),
        helper.make_node("RandomUniform", [], ["f"], shape=[COUNT], low=-1.0, high=3.0),
        helper.make_node("RandomUniformLike", ["x"], ["g"], dtype=TensorProto.DOUBLE),
        helper.make_node("Bernoulli", ["p"], ["h"], dtype=TensorProto.BOOL),
    ]
    chances = np.full(COUNT, 0.3, np.float32)
    names = list("abcdefgh")
    model = onnx_model(nodes, {"x": [COUNT], "p": [COUNT]}, names, opset=15)
    for value in model.graph.output:
        value.type.tensor_type.ClearField("elem_type")
    rep = backend.prepare(model)
    first, again = (rep.run([random(COUNT), chances]) for _ in range(2))
    drawn = dict(zip(names, first, strict=True))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(drawn["a"], drawn["b"])
    assert drawn["g"].dtype == np.float64 and drawn["h"].dtype == bool
    error = 5 / np.sqrt(COUNT)
    for name, mean, deviation in (
        ("a", 2, 3), ("c", 2, 3), ("d", 0, 1), ("e", 0, 1), ("f", 1, 4 / np.sqrt(12)),
        ("g", 0.5, 1 / np.sqrt(12)), ("h", 0.3, np.sqrt(0.21)),
    ):  # fmt: skip
        values = drawn[name].astype(np.float64)
        assert abs(values.mean() - mean) < error * deviation, name
        assert abs(values.std() - deviation) < error * deviation, name
    assert drawn["f"].min() > -1 and drawn["f"].max() < 3
    for one, other in (("a", "c"), ("d", "e"), ("f", "g"), ("d", "g")):
        pair = np.corrcoef(drawn[one], drawn[other])[0, 1]
        lagged = np.corrcoef(drawn[one][1:], drawn[one][:-1])[0, 1]
        assert abs(pair) < error and abs(lagged) < error, (one, other)
    normal = np.sort(drawn["d"])
    assert abs((np.abs(normal) < 1).mean() - 0.6827) < error
    assert 3.5 < normal[-1] < 5.5 and -5.5 < normal[0] < -3.5


@pytest.mark.parametrize("opset", [7, 17])
def test_classes_have_the_chances_of_their_scores(opset: int, tmp_path: Path) -> None:
    """Scores are logarithms of chances, as a policy's last layer gives them."""
    node = helper.make_node("Multinomial", ["x"], ["y"], sample_size=COUNT, dtype=TensorProto.INT64)
    model = onnx_model([node], {"x": ["n", 4]}, ["y"], opset=opset)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1
    scores = np.array([[0.0, 1.0, -100.0, 2.0], [7.0, 7.0, 7.0, 7.0]], np.float32)
    with byoc.load(made.path) as library:
        drawn = library.run({"x": scores})["y"]
    assert drawn.dtype == np.int64 and drawn.shape == (2, COUNT)
    want = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    for row, chances in zip(drawn, want, strict=True):
        found = np.bincount(row, minlength=4) / COUNT
        np.testing.assert_allclose(found, chances, atol=5 / np.sqrt(COUNT))
    assert abs(np.corrcoef(drawn[1][1:], drawn[1][:-1])[0, 1]) < 5 / np.sqrt(COUNT)
