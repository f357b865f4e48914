"""Marks: what partitioning offloads of a marked module."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.relax.dpl import is_op, wildcard

import byoc
from byoc.canonicalise import canonicalise
from byoc.compiler.partition import partition_with_report
from byoc.errors import ControlError
from byoc.frontends.onnx import import_onnx, prepare
from byoc.ir.origin import origin_of
from byoc.partition.marks import MARKED_ATTRIBUTE
from models.builder import GraphBuilder
from tests.ir.graphs import constant, random, regions, relax_module


def network() -> tvm.IRModule:
    """lv matmul, lv1 relu, lv2 matmul, lv3 relu, and a softmax."""

    def build(emit: Any, x: Any) -> Any:
        for seed in (1, 2):
            x = emit(op.nn.relu(emit(op.matmul(x, constant(random(8, 8, seed=seed))))))
        return op.nn.softmax(x)

    return relax_module(build, (4, 8))


def offloaded(mod: tvm.IRModule) -> list[str]:
    return [name for names in regions(byoc.partition_for_ext(mod)).values() for name in names]


PRODUCT_AND_RELU = is_op("relax.nn.relu")(is_op("relax.matmul")(wildcard(), wildcard()))


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({"ops": ["matmul"]}, ["ext.matmul", "ext.matmul"]),
        ({"ops": ["relax.nn.softmax"]}, ["ext.softmax"]),
        ({"pattern": PRODUCT_AND_RELU}, ["ext.matmul_relu", "ext.matmul_relu"]),
        ({"begin": "lv1", "end": "lv2"}, ["ext.relu", "ext.matmul"]),
        ({"begin": "lv2"}, ["ext.matmul_relu", "ext.softmax"]),
        ({"end": "lv1"}, ["ext.matmul_relu"]),
        ({"nodes": ["lv"]}, ["ext.matmul"]),
        ({"select": lambda binding: binding.var.name in ("lv2", "lv3")}, ["ext.matmul_relu"]),
        ({"ops": ["softmax"], "nodes": ["lv"]}, ["ext.matmul", "ext.softmax"]),
    ],
)
def test_only_marked_bindings_are_offloaded(marks: dict[str, Any], expected: list[str]) -> None:
    before = network()
    assert offloaded(byoc.mark(before, **marks)) == expected
    assert offloaded(before) == ["ext.matmul_relu", "ext.matmul_relu", "ext.softmax"]


def test_marks_add_up_and_survive_saving() -> None:
    mod = byoc.mark(byoc.mark(network(), nodes=["lv"]), ops=["softmax"])
    assert MARKED_ATTRIBUTE in mod.attrs
    mod = tvm.ir.load_json(tvm.ir.save_json(mod))
    assert offloaded(mod) == ["ext.matmul", "ext.softmax"]


def test_begin_may_be_the_variable_itself() -> None:
    mod = network()
    variables = [binding.var for binding in mod["main"].body.blocks[0].bindings]
    assert offloaded(byoc.mark(mod, begin=variables[2], end=variables[3])) == ["ext.matmul_relu"]


def test_reason_of_what_is_not_marked() -> None:
    _, report = partition_with_report(byoc.mark(network(), ops=["matmul"]))
    assert {left.reason for left in report.left} == {
        "relax.nn.relu is not marked; need a mark, as the module has some",
        "relax.nn.softmax is not marked; need a mark, as the module has some",
    }
    assert report.summary() == "2 of 5 operators, 100.0 % of MACs, 2 regions"


def test_marks_go_through_canonicalisation() -> None:
    """A BatchNorm is folded into the marked convolution before it; ONNX names serve as marks."""
    graph = GraphBuilder("marked", seed=1)
    x = graph.input("x", (1, 3, 8, 8))
    x = graph.batch_norm(graph.conv(x, (3, 4), 3), 4)
    graph.output(graph.op("Softmax", x), "y", (1, 4, 8, 8))
    model = prepare(graph.build())
    (name,) = [node.name for node in model.graph.node if node.op_type == "Conv"]
    mod = byoc.mark(import_onnx(model), nodes=[name])
    marked = [
        binding.value.op.name
        for binding in canonicalise(mod)["main"].body.blocks[0].bindings
        if isinstance(binding.value, relax.Call) and origin_of(binding.value).marked
    ]
    assert "relax.nn.conv2d" in marked and "relax.nn.softmax" not in marked
    assert all(entry.startswith("ext.conv2d") for entry in offloaded(mod))


def test_marks_that_mark_nothing_are_errors() -> None:
    with pytest.raises(ControlError, match="nothing to mark"):
        byoc.mark(network(), ops=["conv2d"])
    with pytest.raises(ControlError, match="nothing to mark"):
        byoc.mark(network())
    with pytest.raises(ControlError, match="'lv9' names no binding"):
        byoc.mark(network(), begin="lv9")
    with pytest.raises(ControlError, match="begin 'lv3' comes after end 'lv'"):
        byoc.mark(network(), begin="lv3", end="lv")
    with pytest.raises(ControlError, match="'matmull' is no Relax operator"):
        byoc.mark(network(), ops=["matmull"])
    for given, message in (
        ({"mod": None}, "the module is of type NoneType; need a tvm.IRModule"),
        ({"ops": 3}, "ops is 3; need a list of texts"),
        ({"pattern": "matmul"}, "pattern is of type str; need one of tvm.relax.dpl"),
        ({"select": "matmul"}, "select is of type str; need a function"),
    ):
        with pytest.raises(ControlError, match=message):
            byoc.mark(**{"mod": network(), **given})
    with pytest.raises(ControlError, match="the operator is 5; need a text"):
        byoc.register_ext_op(5)
    with pytest.raises(ControlError, match="the predicate is 5; need a function"):
        byoc.register_ext_op("relax.sinh")(5)
    byoc.unregister_ext_op("relax.sinh")
