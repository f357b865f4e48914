"""Nodes with several results: each is judged by itself, under its own name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import byoc
from byoc.cli.compare import _print

FLOAT = onnx.TensorProto.FLOAT


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def network(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int],
    constants: Mapping[str, np.ndarray],
    *outputs: str,
) -> onnx.ModelProto:
    """A graph of ``x`` whose outputs are float32."""
    graph = helper.make_graph(
        nodes,
        "several",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def recurrent() -> onnx.ModelProto:
    weights = {"w": drawn(1, 32, 4), "r": drawn(1, 32, 8), "b": drawn(1, 64)}
    nodes = [
        helper.make_node("LSTM", ["x", *weights], ["all", "h", "c"], "many", hidden_size=8),
        helper.make_node("Add", ["h", "c"], ["hc"]),
        helper.make_node("Add", ["all", "hc"], ["y"]),
    ]
    return network(nodes, [5, 2, 4], weights, "y")


def largest() -> onnx.ModelProto:
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["values", "places"], "many"),
        helper.make_node("Cast", ["places"], ["cast"], to=FLOAT),
        helper.make_node("Add", ["values", "cast"], ["y"]),
    ]
    return network(nodes, [5, 20], {"k": np.array([4])}, "y")


def split() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Split", ["x"], ["left", "right"], "many", axis=1),
        helper.make_node("Sigmoid", ["right"], ["gate"]),
        helper.make_node("Mul", ["left", "gate"], ["y"]),
    ]
    return network(nodes, [5, 20], {}, "y")


def skipped() -> onnx.ModelProto:
    """The sum is a result behind two that are left out, and neither is an operator of ONNX's."""
    weights = {"s": drawn(16), "g": drawn(16), "w": drawn(16, 16)}
    given = ["x", "x", "g", "s"]
    results = ["normal", "", "", "sum"]
    fused = "SkipLayerNormalization"
    nodes = [
        helper.make_node(fused, given, results, "many", domain="com.microsoft", epsilon=1e-5),
        helper.make_node("Softmax", ["normal"], ["soft"]),
        helper.make_node("MatMul", ["sum", "w"], ["product"]),
        helper.make_node("Mul", ["soft", "product"], ["y"]),
    ]
    return network(nodes, [2, 5, 16], weights, "y")


@pytest.mark.parametrize(
    "model, results",
    [
        (recurrent(), {"all", "h", "c"}),
        (largest(), {"values", "places"}),
        (split(), {"left", "right"}),
        (skipped(), {"normal", "sum"}),
    ],
    ids=["LSTM", "TopK", "Split", "SkipLayerNormalization"],
)
def test_each_result_is_judged(model: onnx.ModelProto, results: set[str]) -> None:
    found = byoc.compare(model, min_bytes=0)
    assert found.report.left == () and len(found.report.regions) == 1
    judged = {layer.value: layer for layer in found.layers}
    assert judged.keys() >= results | {"y"} and found.unknown == 0
    assert all("many" in judged[name].names for name in results)
    assert found.error < 1e-5 and all(layer.own.share < 1e-5 for layer in found.layers)


def test_the_table_tells_which_of_the_results_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    found = byoc.compare(recurrent(), min_bytes=0)
    assert {layer.title for layer in found.layers} >= {"many (all)", "many (h)", "many (c)"}
    assert {layer.title for layer in found.layers if not layer.is_one_of_several} == {"hc", "y"}
    _print(found, top=20)
    assert "many (h)" in capsys.readouterr().out and "<td>many (h)</td>" in found.to_html()


def test_a_network_in_float16() -> None:
    """The variables of the module are others once it computes in float32."""
    model = largest()
    model.graph.node[1].attribute[0].i = onnx.TensorProto.FLOAT16
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    found = byoc.compare(model, min_bytes=0)
    assert {"values", "places"} <= {layer.value for layer in found.layers}
    assert found.report.left == () and found.error < 1e-3
