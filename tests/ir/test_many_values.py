"""Networks with hundreds of inputs and outputs: what looks at a value looks at it once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tvm.relax.frontend.onnx import from_onnx

import byoc
from byoc.ir.dataflow import Block
from byoc.ir.walk import expressions_of
from tests.reference import assert_agrees, onnxruntime_outputs

SHAPE = [4, 16]


def _model(kind: str, count: int) -> onnx.ModelProto:
    numbers = range(count)
    many = [f"x{i}" for i in numbers]
    if kind == "sum":
        nodes, results = [helper.make_node("Sum", many, ["y"], "adds")], ["y"]
    else:
        results = [f"y{i}" for i in numbers]
        nodes = [helper.make_node("Sigmoid", [f"x{i}"], [f"y{i}"]) for i in numbers]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in names]
        for names in (many, results)
    )
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("kind", ["sum", "each"])
def test_results_of_many_inputs(kind: str, tmp_path) -> None:
    model = _model(kind, 60)
    done = byoc.compile(model, tmp_path / "many.so")
    assert len(done.report.regions) == 1
    assert done.report.left == ()
    random = np.random.default_rng(0)
    feeds = {f"x{i}": random.standard_normal(SHAPE, np.float32) for i in range(60)}
    found = byoc.load(done.path).run(feeds)
    assert_agrees(dict(found), onnxruntime_outputs(model, feeds))


def test_walk_meets_the_type_of_many_results_no_more_than_once() -> None:
    def met(count: int) -> int:
        module = byoc.partition_for_ext(from_onnx(_model("each", count)))
        return sum(1 for _ in expressions_of(module["main"]))

    small, large = met(50), met(200)
    assert large < 4.2 * small


def test_operands_of_one_node_hand_their_names_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    handed = []
    inherit = Block._inherit

    def counted(block: Block, heir, var) -> None:
        handed.append(heir)
        inherit(block, heir, var)

    monkeypatch.setattr(Block, "_inherit", counted)
    byoc.partition_for_ext(from_onnx(_model("sum", 200)))
    assert 0 < len(handed) < 3000  # 40 000 where each of them hands it to all
