"""What extents of a loop's states are known inside its body, and that others are not supposed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from byoc.frontends.onnx import prepare

from .graphs import onnx_model, random
from .test_control_flow import check, feeds, shaped
from .test_unroll import BOOL, INT64, Nodes, ints, node, value


def loop_model(body: Nodes, step: str = "one", **more: np.ndarray) -> onnx.ModelProto:
    """Rounds make ``next`` of ``state`` [4, 8], at first ``x``, ``at`` + ``step``, and ``part``."""
    results = [value("again", BOOL), value("next"), value("after", INT64), shaped("part", 1, 8)]
    states = [value("round", INT64), value("go", BOOL), value("state"), value("at", INT64)]
    for declared in (results[2], states[3]):
        declared.type.tensor_type.ClearField("shape")
    body = [*body, node("Add", f"at {step}", "after"), node("Identity", "go", "again")]
    graph = helper.make_graph(body, "body", states, results)
    names = ["count", "yes", "x", "zero"]
    nodes = [
        helper.make_node("Cast", ["n"], ["counts"], to=INT64),
        node("Squeeze", "counts", "count"),
        helper.make_node("Loop", names, ["y", "places", "parts"], body=graph),
        node("Relu", "parts", "z"),
    ]
    weights = {
        "yes": np.array(True),
        "zero": np.array(0),
        "one": np.array(1),
        "four": np.array(4),
        "first": ints(0),
        "w": random(8, 8, scale=0.4),
        **more,
    }
    return onnx_model(nodes, {"x": [4, 8], "n": [1]}, ["y", "z"], weights)


def operators_of_rounds(model: onnx.ModelProto) -> set[str]:
    (loop,) = (n for n in prepare(model).graph.node if n.op_type == "Loop")
    return {n.op_type for attribute in loop.attribute for n in attribute.g.node}


ROW = [
    node("Mod", "at four", "row"),
    node("Unsqueeze", "row first", "rows"),
    node("Gather", "x rows", "found"),
    node("MatMul", "found w", "part"),
]


@pytest.mark.slow
def test_a_counter_stays_a_scalar() -> None:
    """What it picks has a known shape, which the body reads, as tf.map_fn's do."""
    body = [
        *ROW,
        node("Shape", "found", "shape"),
        node("ReduceProd", "shape", "size", keepdims=0),
        node("Range", "zero size one", "numbers"),
        node("Reshape", "numbers shape", "grid"),
        node("Cast", "grid", "slopes", to=1),
        node("MatMul", "slopes w", "more"),
        node("Add", "state more", "next"),
    ]
    model = loop_model(body)
    assert not {"Shape", "Range"} & operators_of_rounds(model)
    check(model, *feeds(0, 1, 5))


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1])
def test_an_extent_that_grows_is_not_supposed(axis: int) -> None:
    """The other one is: its number is a constant."""
    body = [
        *ROW,
        node("Concat", "state state", "next", axis=axis),
        node("Shape", "state", "shape"),
        node("Gather", "shape wanted", "extent"),
    ]
    for wanted, known in ((1 - axis, True), (axis, False)):
        model = loop_model(body, "extent", wanted=np.array(wanted))
        assert ("Shape" not in operators_of_rounds(model)) == known
        check(model, *feeds(0, 1, 2, 4))


def test_extents_that_change_places_are_not_supposed() -> None:
    """The state has its first shape again after two rounds."""
    body = [
        *ROW,
        node("Transpose", "state", "next"),
        node("Shape", "state", "shape"),
        node("Gather", "shape zero", "extent"),
    ]
    model = loop_model(body, "extent")
    assert "Shape" in operators_of_rounds(model)
    check(model, *feeds(0, 1, 2, 3))


def test_a_loop_in_a_loop() -> None:
    inner = helper.make_graph(
        [node("Add", "j one", "k"), node("Neg", "s", "t"), node("Identity", "c", "on")],
        "inner",
        [value("i", INT64), value("c", BOOL), value("j", INT64), value("s")],
        [value("on", BOOL), value("k", INT64), value("t")],
    )
    body = [
        *ROW,
        helper.make_node("Loop", ["many", "", "at", "state"], ["inside", "deep"], body=inner),
        node("Add", "deep x", "next"),
    ]
    check(loop_model(body, many=np.array(300)), *feeds(0, 1, 3))
