"""Loops as Paddle's exporter writes them, such as that of a table recogniser (SLANet).

States are called as what they begin with; some are set in each round and read by none, and begin as
something of another rank; scalars and tensors of one element take turns; rows are written where a
slice with computed bounds lies.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import byoc.frontends.onnx.backend as backend
from byoc.errors import ImportFailure
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model, random
from .test_unroll import BOOL, FLOAT, INT64, node, value

ROUNDS = 4


def body() -> onnx.GraphProto:
    """Row ``iter`` of ``buffer`` becomes that of x w; it ends where the row's sum is positive."""
    done = [node("Cast", "done", "d", to=INT64), node("Add", "d nothing", "e")]
    then, otherwise = (helper.make_tensor_value_info(name, BOOL, None) for name in "ab")
    branches = {
        "then_branch": helper.make_graph([node("Identity", "yes", "a")], "then", [], [then]),
        "else_branch": helper.make_graph(
            [*done, node("Cast", "e", "b", to=BOOL)], "else", [], [otherwise]
        ),
    }
    nodes = [
        node("Gather", "x iter", "taken", axis=0),
        node("Unsqueeze", "taken first", "row"),
        node("MatMul", "row w", "new"),
        node("Reshape", "iter minus", "start"),
        node("Add", "start one", "past"),
        node("Min", "past rows", "end"),
        node("Slice", "buffer start end first", "old"),
        node("Shape", "old", "like"),
        node("Expand", "new like", "wide"),
        node("Reshape", "start none", "from"),
        node("Reshape", "end none", "to"),
        node("Range", "from to step", "places"),
        node("Unsqueeze", "places minus", "standing"),
        node("Tile", "standing times", "index"),
        node("ScatterElements", "buffer index wide", "written", axis=0),
        helper.make_node("ReduceSum", ["new"], ["total"], keepdims=0),
        node("Greater", "total zero", "ends"),
        helper.make_node("If", ["ends"], ["over"], **branches),
        node("Cast", "over", "c", to=INT64),
        node("Add", "c nothing", "more"),
        node("Cast", "more", "ended", to=BOOL),
        node("Not", "ended", "going"),
    ]
    inputs = [
        helper.make_tensor_value_info("iter", INT64, []),
        helper.make_tensor_value_info("flag", BOOL, []),
        helper.make_tensor_value_info("buffer", FLOAT, [6, 8]),
        helper.make_tensor_value_info("last", FLOAT, []),
        helper.make_tensor_value_info("done", BOOL, []),
    ]
    outputs = [
        helper.make_tensor_value_info("going", BOOL, []),
        *map(value, ("written", "new")),
        helper.make_tensor_value_info("ended", BOOL, []),
    ]
    return helper.make_graph(nodes, "body", inputs, outputs)


def loop(limit: str = "limit") -> onnx.ModelProto:
    weights = {
        **{"w": random(8, 8), "buffer": random(6, 8, seed=3)},
        **{"last": np.float32(7), "done": np.array(False), "yes": np.array(True)},
        **{"limit": np.array([ROUNDS]), "true": np.array(True), "zero": np.float32(0)},
        **{"first": np.array([0]), "minus": np.array([-1]), "none": np.zeros(0, np.int64)},
        **{"one": np.array([1]), "rows": np.array([6]), "step": np.array(1)},
        "nothing": np.array([0]),
        "times": np.array([1, 8]),
    }
    nodes = [
        helper.make_node(
            "Loop", [limit, "true", "buffer", "last", "done"], ["y", "z", "over_"], body=body()
        ),
        node("Tanh", "y", "a_"),
    ]
    named = {name: np.asarray(array) for name, array in weights.items()}
    inputs = {"x": [ROUNDS, 8], **({limit: [1]} if limit != "limit" else {})}
    return onnx_model(nodes, inputs, ["a_", "z"], named)


def feeds() -> dict[str, dict[str, np.ndarray]]:
    """Rows whose products with the weights have negative sums, and where one has not."""
    rows = random(ROUNDS, 8, seed=5)
    sums = rows @ random(8, 8).sum(axis=1)
    never = -rows * np.sign(sums)[:, None]
    third = never.copy()
    third[2] *= -1
    return {"all rounds": {"x": never}, "three rounds": {"x": third}}


@pytest.mark.slow
@pytest.mark.parametrize("case", feeds())
def test_a_loop_of_paddles(case: str) -> None:
    model, feed = loop(), feeds()[case]
    compiled = backend.prepare(model, min_bytes=0)
    assert "relax.matmul" not in {entry.op for entry in compiled.report.left}
    assert len(compiled.report.regions) > 1
    found = dict(zip(["a_", "z"], compiled.run(feed), strict=True))
    assert_agrees(found, onnxruntime_outputs(model, feed))


def test_a_state_of_another_rank_needs_a_round() -> None:
    """With no round it would be what it began as."""
    model = loop("most")
    model.graph.input[1].type.tensor_type.elem_type = INT64
    with pytest.raises(ImportFailure, match="a state whose rank changes from round to round"):
        backend.prepare(model, min_bytes=0)
