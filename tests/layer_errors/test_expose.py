"""The pass that lays values open: composites stay, and are fed what the caller gives."""

from __future__ import annotations

import onnx
import pytest
import tvm

from byoc.frontends import import_model
from byoc.ir.dataflow import is_region
from byoc.partition import partition
from byoc.partition.expose import INPUT, OUTPUT, Expose, Exposed
from byoc.partition.prune import nodes_of
from byoc.partition.rules import Rules
from codegen_cc.node import Node
from models.builder import GraphBuilder
from tests.layer_errors.networks import perceptron
from tests.quantised.float_networks import bert_like, resnet_like

KEEP_ALL = Rules(min_bytes=0)


def composites(mod: tvm.IRModule) -> list[Node]:
    return [node for func in mod.functions.values() if is_region(func) for node in nodes_of(func)]


@pytest.mark.parametrize("how", [Exposed.TOTAL, Exposed.OWN])
@pytest.mark.parametrize("network", [resnet_like, bert_like])
def test_composites_are_those_of_the_plain_partition(network, how: Exposed) -> None:
    module = import_model(network()).module
    plain = composites(partition(module, KEEP_ALL)[0])
    expose = Expose(how=how)
    exposed, report = partition(module, KEEP_ALL, expose=expose)
    key = Node.to_json
    assert report.left == () and len(plain) > 10
    assert sorted(composites(exposed), key=key) == sorted(plain, key=key)
    assert len(expose.judged) + expose.unknown == len(plain)


def test_outputs_are_added_behind_those_of_the_model() -> None:
    imported = import_model(perceptron())
    expose = Expose(wanted={"relu_5", "relu_8"})
    module, _ = partition(imported.module, KEEP_ALL, expose=expose)
    inputs, outputs = expose.signature(imported.inputs, imported.outputs)
    assert [info.name for info in outputs] == ["y", OUTPUT + "relu_5", OUTPUT + "relu_8"]
    assert inputs == imported.inputs and len(module["main"].params) == 1
    assert len(module["main"].ret_ty.fields) == 3
    assert [judged.name for judged in expose.judged][:2] == ["relu_2", "relu_5"]


def test_a_node_alone_reads_what_the_caller_gives_and_nothing_else_is_computed() -> None:
    imported = import_model(perceptron())
    expose = Expose(None, Exposed.OWN, {"relu_5"})
    module, _ = partition(imported.module, KEEP_ALL, expose=expose)
    inputs, outputs = expose.signature(imported.inputs, imported.outputs)
    assert [info.name for info in inputs] == ["x", INPUT + "relu_2"]
    assert [info.name for info in outputs] == [OUTPUT + "relu_5"]
    (node,) = composites(module)
    assert node.source == ("fc1", "add_4", "relu_5")


def test_the_module_given_stays_as_it_is() -> None:
    module = import_model(perceptron()).module
    before = module.script()
    partition(module, KEEP_ALL, expose=Expose(how=Exposed.OWN))
    assert module.script() == before


def test_values_that_a_branch_reads_are_laid_open() -> None:
    helper, float_ = onnx.helper, onnx.TensorProto.FLOAT
    branches = [
        helper.make_graph(
            [helper.make_node(op, ["h"], [f"out_{op}"])],
            op,
            [],
            [helper.make_tensor_value_info(f"out_{op}", float_, (2, 2))],
        )
        for op in ("Relu", "Neg")
    ]
    nodes = [
        helper.make_node("Exp", ["x"], ["h"], name="before"),
        helper.make_node("If", ["which"], ["z"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Tanh", ["z"], ["y"], name="after"),
    ]
    inputs = [
        helper.make_tensor_value_info("x", float_, (2, 2)),
        helper.make_tensor_value_info("which", onnx.TensorProto.BOOL, ()),
    ]
    outputs = [helper.make_tensor_value_info("y", float_, (2, 2))]
    graph = helper.make_graph(nodes, "branches", inputs, outputs)
    opsets = [helper.make_opsetid("", 17)]
    module = import_model(helper.make_model(graph, opset_imports=opsets, ir_version=9)).module
    expose = Expose()
    partition(module, KEEP_ALL, expose=expose)
    assert {judged.name for judged in expose.judged} == {"h", "z", "y"}


def test_the_result_of_a_batch_norm_is_its_first() -> None:
    graph = GraphBuilder("norm", seed=1)
    x = graph.input("x", (1, 8, 6, 6))
    norm = graph.batch_norm(graph.conv(x, (8, 8), 1), 8)
    graph.output(graph.op("Softmax", norm, axis=1), "y", (1, 8, 6, 6))
    expose = Expose(wanted={norm})
    module, _ = partition(import_model(graph.build()).module, KEEP_ALL, expose=expose)
    assert [info.name for info in expose.outputs] == [OUTPUT + norm] and expose.unknown == 0
    assert len(module["main"].ret_ty.fields) == 2
