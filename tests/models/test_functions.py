"""Functions of a model, and operators that ONNX defines by others, are written out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, parser

import byoc.frontends.onnx.backend as backend
from byoc.frontends.onnx import prepare, prepare_apart
from byoc.frontends.onnx.weights_apart import LARGE_WEIGHT
from tests.ir.graphs import onnx_model, random
from tests.reference import assert_agrees, onnxruntime_outputs

OWN = """
<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
graph (float[2, 8] x, float[8] b) => (y, z) {
   y = own.Block <alpha = 0.3, scale = 2.0> (x, b)
   z = own.Block <alpha = 0.1> (y)
}
<opset_import: ["" : 18, "own" : 1], domain: "own">
Block <alpha, scale: float = 1.5> (v, w) => (r) {
   t = own.Leaky <alpha: float = @alpha> (v)
   s = Constant <value_float: float = @scale> ()
   r = Mul (t, s)
}
<opset_import: ["" : 18], domain: "own">
Leaky <alpha> (v) => (r) {
   least = ReduceMin <keepdims = 0> (v)
   none = Constant <value_float = 0.0> ()
   some = Less (least, none)
   r = If (some) <
      then_branch = g1 () => (float[2, 8] r1) { r1 = LeakyRelu <alpha: float = @alpha> (v) },
      else_branch = g2 () => (float[2, 8] r2) { r2 = Identity (v) }
   >
}
"""


def test_functions_of_the_model() -> None:
    """Nested, with attributes, defaults, an input left out, and a branch."""
    model = parser.parse_model(OWN)
    for node, name in zip(model.graph.node, ("first", "second"), strict=True):
        node.name = name
    inputs = {"x": random(2, 8), "b": random(8, seed=1)}
    rep = backend.prepare(model, min_bytes=0)
    results = rep.run(inputs)
    assert rep.report.offloaded >= 2
    assert_agrees(
        dict(zip(results._fields, results, strict=True)), onnxruntime_outputs(model, inputs)
    )


def test_nodes_of_a_body_are_known_by_the_call() -> None:
    model = parser.parse_model(OWN)
    model.graph.node[0].name = "first"
    assert {node.name.partition("/")[0] for node in prepare(model).graph.node} == {"first", "z"}
    norm = helper.make_node("LpNormalization", ["x"], ["y"], "norm", p=1)
    names = {node.name for node in prepare(onnx_model([norm], {"x": [3, 4]}, ["y"])).graph.node}
    assert names == {"norm"}


def test_operators_defined_by_others() -> None:
    """Swish takes a default, HannWindow is folded, Attention becomes one kernel."""
    nodes = [
        helper.make_node("Swish", ["x"], ["a"]),
        helper.make_node("HannWindow", ["size"], ["w"]),
        helper.make_node("Mul", ["a", "w"], ["b"]),
        helper.make_node("Attention", ["q", "q", "b4", "mask"], ["c"], "attention"),
        helper.make_node("Unsqueeze", ["b", "zero"], ["b4"]),
    ]
    weights = {
        "size": np.array(8),
        "zero": np.array([0, 1]),
        "mask": np.array([[1, 0, 1], [1, 1, 1], [0, 0, 0]], bool),
    }
    model = onnx_model(nodes, {"x": [3, 8], "q": [1, 1, 3, 4]}, ["c"], weights, 24)
    model.ir_version = 11
    inputs = {"x": random(3, 8), "q": random(1, 1, 3, 4, seed=1)}
    rep = backend.prepare(model, min_bytes=0)
    (c,) = rep.run(inputs)
    assert rep.report.left == ()
    assert "attention" in {use.algorithm for use in rep.report.kernels}
    want = onnxruntime_outputs(model, inputs)["c"]
    assert not want[0, 0, 2].any(), "a row without a key is 0"
    assert_agrees({"c": c}, {"c": want})


def test_a_scalar_stays_one() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float x) => (float y, float z) {
        y = Celu <alpha: float = 0.7> (x) z = Celu (y) }"""
    model = parser.parse_model(text)
    for value in (-0.6, 0.6):
        feeds = {"x": np.asarray(value, np.float32)}
        outputs = backend.prepare(model).run(list(feeds.values()))
        assert_agrees(dict(zip("yz", outputs, strict=True)), onnxruntime_outputs(model, feeds))


def test_large_weights_stay_where_they_are(tmp_path: Path) -> None:
    """A model with functions is prepared without reading them."""
    model = parser.parse_model(OWN)
    width = LARGE_WEIGHT // 32
    weight = onnx.numpy_helper.from_array(random(8, width), "large")
    model.graph.initializer.append(weight)
    model.graph.node.append(helper.make_node("MatMul", ["z", "large"], ["w"]))
    model.graph.output.append(helper.make_empty_tensor_value_info("w"))
    file = tmp_path / "own.onnx"
    onnx.save(model, file)
    assert set(prepare_apart(file).weights) == {"large"}


def test_deviations_far_below_the_mean() -> None:
    """What ONNX's definition of MeanVarianceNormalization rounds away counts."""
    for opset, given in ((9, {}), (13, {"axes": [1, -1]})):
        node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"], **given)
        model = onnx_model([node], {"x": ["n", 3, 5, 6]}, ["y"], opset=opset)
        rep = backend.prepare(model, min_bytes=0)
        x = 1000 + random(2, 3, 5, 6)
        (y,) = rep.run({"x": x})
        assert (rep.report.left, len(rep.report.regions)) == ((), 1)
        axes = tuple(given.get("axes", (0, 2, 3)))
        centred = x.astype(float) - x.mean(axes, float, keepdims=True)
        want = centred / np.sqrt((centred**2).mean(axes, keepdims=True))
        np.testing.assert_allclose(y, want, atol=1e-3)
