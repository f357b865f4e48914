"""Sequences and optionals as inputs of a model: each call compiles for what they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from byoc.errors import InputError
from byoc.frontends.onnx.backend import prepare

DRAW = np.random.default_rng(4)
TENSOR = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
SEQUENCE = helper.make_sequence_type_proto(TENSOR)


def model(nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
    given, made = (
        [helper.make_value_info(name, kind) for name, kind in values.items()]
        for values in (inputs, outputs)
    )
    graph = helper.make_graph(nodes, "graph", given, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def floats(*shape: int) -> np.ndarray:
    return DRAW.standard_normal(shape).astype("f4")


def test_lengths_and_places_are_those_of_the_call() -> None:
    place = helper.make_tensor_type_proto(TensorProto.INT64, [])
    nodes = [
        helper.make_node("SequenceInsert", ["s", "x", "at"], ["t"]),
        helper.make_node("ConcatFromSequence", ["t"], ["joined"], axis=0),
        helper.make_node("Tanh", ["joined"], ["y"]),
    ]
    graph = model(nodes, {"s": SEQUENCE, "x": TENSOR, "at": place}, {"y": TENSOR, "t": SEQUENCE})
    rep = prepare(graph, min_bytes=0)
    for parts, at in ((2, 0), (2, -1), (3, 3), (0, 0), (0, 0)):
        held, x = [floats(n + 1, 8) for n in range(parts)], floats(2, 8)
        got, whole = rep.run({"s": held, "x": x, "at": np.array(at)})
        assert rep.report.left == ()
        want = [*held]
        want.insert(at, x)
        np.testing.assert_allclose(got, np.tanh(np.concatenate(want)), atol=1e-6)
        assert len(whole) == len(want)
        for one, other in zip(whole, want, strict=True):
            np.testing.assert_array_equal(one, other)


def test_optionals_hold_what_the_call_gives() -> None:
    kind = helper.make_optional_type_proto(TENSOR)
    body = [
        helper.make_node("Relu", ["held"], ["r"]),
        helper.make_node("Constant", [], ["none"], value_float=-1.0),
    ]
    branch = [
        helper.make_graph(nodes, "branch", [], [helper.make_value_info(name, TENSOR)])
        for nodes, name in (
            ([helper.make_node("OptionalGetElement", ["o"], ["held"]), body[0]], "r"),
            ([body[1]], "none"),
        )
    ]
    nodes = [
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node("If", ["has"], ["y"], then_branch=branch[0], else_branch=branch[1]),
    ]
    rep = prepare(model(nodes, {"o": kind}, {"y": TENSOR}))
    x = floats(3, 4)
    np.testing.assert_array_equal(rep.run([x])[0], np.maximum(x, 0))
    assert rep.run([None])[0] == -1.0


def test_what_is_no_list_is_refused() -> None:
    graph = model([helper.make_node("SequenceLength", ["s"], ["n"])], {"s": SEQUENCE},
                  {"n": helper.make_tensor_type_proto(TensorProto.INT64, [])})  # fmt: skip
    with pytest.raises(InputError, match="input 's' is of type float; need a list of arrays"):
        prepare(graph).run([1.0])
    assert prepare(graph).run([[floats(1), floats(2)]])[0] == 2
