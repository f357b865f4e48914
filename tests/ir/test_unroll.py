"""Loops of known rounds and sequences of known lengths become plain nodes, of equal value."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import byoc.frontends.onnx.backend as backend
from byoc.frontends.onnx import prepare
from byoc.frontends.onnx.unroll import MAX_ROUNDS
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model, random

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

SEQUENCES = (
    "ConcatFromSequence",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
    "SequenceMap",
    "SplitToSequence",
)

Nodes = list[onnx.NodeProto]


def value(name: str, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    """A tensor of any shape, or a scalar where it is no float: ONNX Runtime wants to know."""
    return helper.make_tensor_value_info(name, dtype, None if dtype == FLOAT else [])


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def check(model: onnx.ModelProto, *gone: str) -> None:
    """No such nodes are left, everything is offloaded, and the numbers are ONNX Runtime's."""
    left = {node.op_type for node in prepare(model).graph.node}
    assert not left.intersection(gone), left
    feed = {
        info.name: random(*(dim.dim_value for dim in info.type.tensor_type.shape.dim), seed=number)
        for number, info in enumerate(model.graph.input)
    }
    compiled = backend.prepare(model, min_bytes=0)
    assert compiled.report.left == () and compiled.report.offloaded > 0
    found = compiled.run(feed)
    names = [output.name for output in model.graph.output]
    assert_agrees(dict(zip(names, found, strict=True)), onnxruntime_outputs(model, feed))


# ---------------------------------------------------------------------- Loop


def loop_model(
    body: Nodes,
    weights: dict[str, np.ndarray],
    going: str = "going",
    inputs: tuple[str, str] = ("rounds", "yes"),
    scanned: bool = True,
    opset: int = 17,
) -> onnx.ModelProto:
    """``state`` goes through rounds of a body that makes ``next`` of it, and maybe ``part``."""
    results = [value(going, BOOL), value("next"), *([value("part")] if scanned else [])]
    states = [value("round", INT64), value("going", BOOL), value("state")]
    graph = helper.make_graph(body, "body", states, results)
    outputs = ["y", "parts"] if scanned else ["y"]
    loop = helper.make_node("Loop", [*inputs, "x"], outputs, body=graph)
    return onnx_model([loop], {"x": [4, 8]}, outputs, weights, opset)


def recurrence() -> Nodes:
    """A product with the state, and with the number of the round."""
    return [
        helper.make_node("MatMul", ["state", "w"], ["product"]),
        helper.make_node("Tanh", ["product"], ["next"]),
        helper.make_node("Cast", ["round"], ["number"], to=FLOAT),
        helper.make_node("Mul", ["next", "number"], ["part"]),
    ]


WEIGHTS = {"rounds": np.array(3), "yes": np.array(True), "w": random(8, 8)}


@pytest.mark.parametrize("opset", [11, 13, 17])
def test_a_loop_of_a_constant_count(opset: int) -> None:
    check(loop_model(recurrence(), WEIGHTS, opset=opset), "Loop")


def test_a_loop_without_a_condition() -> None:
    check(loop_model(recurrence(), WEIGHTS, inputs=("rounds", "")), "Loop")


def test_a_condition_that_is_handed_on() -> None:
    body = [*recurrence(), helper.make_node("Identity", ["going"], ["again"])]
    check(loop_model(body, WEIGHTS, "again"), "Loop")


def test_a_loop_that_ends_after_one_round() -> None:
    stop = helper.make_node(
        "Constant", [], ["stop"], value=numpy_helper.from_array(np.array(False))
    )
    check(loop_model([*recurrence(), stop], WEIGHTS, "stop"), "Loop")


@pytest.mark.parametrize(("rounds", "first"), [(0, True), (3, False), (-1, True)])
def test_a_loop_of_no_rounds(rounds: int, first: bool) -> None:
    weights = WEIGHTS | {"rounds": np.array(rounds), "yes": np.array(first)}
    model = loop_model(recurrence()[:2], weights, scanned=False)
    model.graph.node.append(helper.make_node("Relu", ["y"], ["z"]))
    model.graph.output[0].name = "z"
    check(model, "Loop")


def test_a_count_from_a_shape() -> None:
    model = loop_model(recurrence(), {name: WEIGHTS[name] for name in ("w", "yes")})
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rounds"]),
    ]
    model.graph.node.insert(0, nodes[0])
    model.graph.node.insert(1, nodes[1])
    model.graph.initializer.append(numpy_helper.from_array(np.array(0), "zero"))
    check(model, "Loop")


def test_branches_and_loops_in_a_loop() -> None:
    """Each round takes another branch, and one of them has a loop of its own."""
    inner = helper.make_graph(
        [helper.make_node("MatMul", ["s", "w"], ["t"])],
        "inner",
        [value("i", INT64), value("c", BOOL), value("s")],
        [value("c", BOOL), value("t")],
    )
    branches = {
        "then_branch": [helper.make_node("Loop", ["two", "", "state"], ["result"], body=inner)],
        "else_branch": [helper.make_node("Tanh", ["state"], ["result"])],
    }
    graphs = {
        name: helper.make_graph(nodes, name, [], [value("result")])
        for name, nodes in branches.items()
    }
    body = [
        helper.make_node("Mod", ["round", "two"], ["odd"]),
        helper.make_node("Cast", ["odd"], ["is_odd"], to=BOOL),
        helper.make_node("If", ["is_odd"], ["next"], **graphs),
        helper.make_node("Neg", ["next"], ["part"]),
    ]
    weights = WEIGHTS | {"rounds": np.array(4), "two": np.array(2), "w": random(8, 8, scale=0.3)}
    check(loop_model(body, weights), "Loop", "If")


def test_a_long_loop_is_not_written_out() -> None:
    weights = WEIGHTS | {"rounds": np.array(MAX_ROUNDS + 1)}
    prepared = prepare(loop_model(recurrence(), weights))
    assert [node.op_type for node in prepared.graph.node] == ["Loop"]


# ---------------------------------------------------------------------- Scan


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize(("axis", "output_axis"), [(0, 0), (1, -1), (-2, 1)])
def test_a_scan(back: int, axis: int, output_axis: int) -> None:
    """One state and two inputs, the second forwards; one result forwards, one as asked."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["s", "w"], ["product"]),
            helper.make_node("Add", ["product", "p"], ["sum"]),
            helper.make_node("Mul", ["sum", "q"], ["t"]),
            helper.make_node("Neg", ["t"], ["minus"]),
        ],
        "body",
        [value("s"), value("p"), value("q")],
        [value("t"), value("minus"), value("sum")],
    )
    scan = helper.make_node(
        "Scan",
        ["x", "a", "b"],
        ["y", "first", "second"],
        body=body,
        num_scan_inputs=2,
        scan_input_axes=[axis, 0],
        scan_input_directions=[back, 0],
        scan_output_axes=[output_axis, 0],
        scan_output_directions=[back, 0],
    )
    shape = [4, 8]
    shape.insert(axis if axis >= 0 else axis + 3, 5)
    inputs = {"x": [4, 8], "a": shape, "b": [5, 4, 8]}
    check(
        onnx_model([scan], inputs, ["y", "first", "second"], {"w": random(8, 8, scale=0.2)}), "Scan"
    )


# ---------------------------------------------------------------------- sequences


def node(operator: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), [output], **attributes)


@pytest.mark.parametrize("new_axis", [0, 1])
@pytest.mark.parametrize("opset", [11, 17])
def test_a_chain_of_sequences(opset: int, new_axis: int) -> None:
    nodes = [
        node("SplitToSequence", "x sizes", "parts", axis=0),
        node("SequenceAt", "parts last", "tail"),
        node("SequenceErase", "parts last", "others"),
        node("Relu", "tail", "positive"),
        node("SequenceInsert", "others positive first", "more"),
        node("SequenceLength", "more", "count"),
        node("Cast", "count", "number", to=FLOAT),
        node("ConcatFromSequence", "more", "joined", axis=0, new_axis=new_axis),
        node("Mul", "joined number", "y"),
    ]
    weights = {"sizes": ints(2, 2, 2), "last": np.array(-1), "first": np.array(0)}
    check(onnx_model(nodes, {"x": [6, 8]}, ["y"], weights, opset), *SEQUENCES)


@pytest.mark.parametrize("keepdims", [0, 1])
def test_single_rows(keepdims: int) -> None:
    nodes = [
        node("SplitToSequence", "x", "rows", axis=1, keepdims=keepdims),
        node("SequenceConstruct", "z z", "pair"),
        node("SequenceAt", "rows two", "row"),
        node("SequenceAt", "pair minus_one", "same"),
        node("Add", "row same", "y"),
    ]
    weights = {"two": np.array(2), "minus_one": np.array(-1)}
    shape = [5, 1] if keepdims else [5]
    check(onnx_model(nodes, {"x": [5, 4], "z": shape}, ["y"], weights), *SEQUENCES)


def test_a_sequence_grows_in_a_loop() -> None:
    body = helper.make_graph(
        [
            node("Cast", "round", "number", to=FLOAT),
            node("Mul", "x number", "scaled"),
            node("SequenceInsert", "seen scaled", "more"),
        ],
        "body",
        [
            value("round", INT64),
            value("going", BOOL),
            helper.make_tensor_sequence_value_info("seen", FLOAT, None),
        ],
        [value("going", BOOL), helper.make_tensor_sequence_value_info("more", FLOAT, None)],
    )
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("Loop", ["rounds", "", "none"], ["all"], body=body),
        node("ConcatFromSequence", "all", "y", axis=0),
    ]
    check(onnx_model(nodes, {"x": [2, 8]}, ["y"], {"rounds": np.array(3)}), "Loop", *SEQUENCES)


def test_a_map_over_a_sequence() -> None:
    body = helper.make_graph(
        [node("Add", "part other", "both"), node("Mul", "both part", "product")],
        "body",
        [value("part"), value("other")],
        [value("both"), value("product")],
    )
    nodes = [
        node("SplitToSequence", "x two", "parts", axis=0),
        helper.make_node("SequenceMap", ["parts", "z"], ["sums", "products"], body=body),
        node("SequenceAt", "sums one", "sum"),
        node("ConcatFromSequence", "products", "joined", axis=0),
        node("MatMul", "joined sum", "y"),
    ]
    weights = {"two": np.array(2), "one": np.array(1)}
    check(onnx_model(nodes, {"x": [4, 2], "z": [2, 2]}, ["y"], weights), *SEQUENCES)


def test_optionals() -> None:
    branches = {
        name: helper.make_graph([node(operator, "held", "result")], name, [], [value("result")])
        for name, operator in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    nodes = [
        node("Optional", "x", "maybe"),
        node("OptionalHasElement", "maybe", "there"),
        node("OptionalGetElement", "maybe", "held"),
        helper.make_node("If", ["there"], ["y"], **branches),
    ]
    check(onnx_model(nodes, {"x": [4, 8]}, ["y"], {}), "If", "Optional", "OptionalGetElement")
