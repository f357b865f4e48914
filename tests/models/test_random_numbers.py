"""Random operators: no engine draws what another does, so what holds of them is tested."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

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
