"""Skipping, keeping, predicates and demands: each asserted by what is offloaded afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.relax import op

import byoc
from byoc.compiler.partition import partition_with_report
from byoc.errors import ControlError, CoverageError
from byoc.frontends.onnx import import_onnx
from byoc.patterns.registry import Candidate, Unfit
from byoc.report import Report
from codegen_cc import Node, Operand
from models.builder import GraphBuilder
from tests.ir.graphs import constant, operators, random, regions, relax_module

#: Operators that tests register rules for.
REGISTERED = ("relax.nn.conv2d", "relax.nn.relu", "relax.matmul", "relax.square")


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    for name in REGISTERED:
        byoc.unregister_ext_op(name)


def network() -> tvm.IRModule:
    """conv, bias and ReLU; conv; softmax."""

    def build(emit: Any, x: Any) -> Any:
        y = emit(op.nn.conv2d(x, constant(random(8, 3, 3, 3)), padding=1))
        y = emit(op.nn.relu(emit(op.add(y, constant(random(1, 8, 1, 1))))))
        y = emit(op.nn.conv2d(y, constant(random(4, 8, 1, 1))))
        return emit(op.nn.softmax(y, axis=1))

    return relax_module(build, (1, 3, 6, 6))


def composites(mod: tvm.IRModule) -> list[str]:
    return [name for region in regions(mod).values() for name in region]


def reasons(report: Report) -> dict[str, str]:
    return {left.op.removeprefix("relax."): left.reason for left in report.left}


def test_skip_ops() -> None:
    for name in ("relax.nn.softmax", "nn.softmax", "softmax"):
        mod, report = partition_with_report(network(), skip_ops=[name])
        assert composites(mod) == ["ext.conv2d_bias_relu", "ext.conv2d"]
        assert reasons(report) == {"nn.softmax": "skipped by operator relax.nn.softmax"}
    assert composites(byoc.partition_for_ext(network(), skip_ops="softmax")) == [
        "ext.conv2d_bias_relu",
        "ext.conv2d",
    ]


def test_a_skipped_operator_is_no_step_either() -> None:
    mod = byoc.partition_for_ext(network(), skip_ops=["relu"])
    assert composites(mod) == ["ext.conv2d_bias", "ext.conv2d", "ext.softmax"]
    assert operators(mod) == ["relax.nn.relu"]
    mod = byoc.partition_for_ext(network(), skip_ops=["add"])
    assert composites(mod) == ["ext.conv2d", "ext.relu", "ext.conv2d", "ext.softmax"]


def test_only() -> None:
    mod, report = partition_with_report(network(), only=["conv2d"])
    assert composites(mod) == ["ext.conv2d", "ext.conv2d"]
    assert report.left[0].reason == "not among the operators to offload (relax.nn.conv2d)"
    mod = byoc.partition_for_ext(network(), only=["conv2d", "add", "relu"], skip_ops=["relu"])
    assert composites(mod) == ["ext.conv2d_bias", "ext.conv2d"]


def onnx_network() -> tvm.IRModule:
    graph = GraphBuilder("named", seed=1)
    x = graph.input("x", (1, 3, 8, 8))
    x = graph.batch_norm(graph.conv(x, (3, 4), 3), 4)
    graph.output(graph.conv(x, (4, 4), 3), "y", (1, 4, 8, 8))
    model = graph.build()
    for node, name in zip(model.graph.node, ("/stem/conv", "/stem/bn", "head[0]"), strict=False):
        node.name = name
    return import_onnx(model)


@pytest.mark.parametrize(
    ("globs", "left"),
    [
        (["/stem/*"], 1),
        (["/stem/bn"], 1),  # folded into the convolution, which goes by both names
        (["head[0]"], 1),  # literally: as a pattern it would mean head0
        (["/stem/conv", "head*"], 2),
    ],
)
def test_skip_nodes(globs: list[str], left: int) -> None:
    mod, report = partition_with_report(onnx_network(), skip_nodes=globs)
    convolutions = [entry for entry in report.left if entry.op == "relax.nn.conv2d"]
    assert len(convolutions) == left
    assert convolutions[0].reason == f"skipped by node name {globs[0]!r}"
    assert sum(name.startswith("ext.conv2d") for name in composites(mod)) == 2 - left


def test_unknown_names_are_errors_with_suggestions() -> None:
    with pytest.raises(ControlError, match=r"'Conv' is no Relax operator; did you mean .*'conv2d'"):
        byoc.partition_for_ext(network(), skip_ops=["Conv"])
    with pytest.raises(ControlError, match=r"'sofmax'.*'softmax'"):
        byoc.partition_for_ext(network(), only=["sofmax"])
    with pytest.raises(ControlError, match=r"no node is called '/stem/con'.*'/stem/conv'"):
        byoc.partition_for_ext(onnx_network(), skip_nodes=["/stem/con"])
    with pytest.raises(ControlError, match="'relax'"):
        byoc.register_ext_op("relax")


# ---------------------------------------------------------------------- predicates


def test_predicate_sees_shapes_attributes_and_constants() -> None:
    seen: list[tuple[str, tuple[Any, ...], Any]] = []

    def predicate(node: Node, call: Any) -> str | None:
        seen.append((node.op, node.shape, node.attrs.get("padding")))
        if node.op != "conv2d":
            return None
        weight = call.args[1].value.numpy()
        return None if weight.shape[2] == 3 else f"kernel of {weight.shape[2]}; need 3"

    mod, report = partition_with_report(network(), predicate=predicate)
    assert composites(mod)[0] == "ext.conv2d_bias_relu"
    assert reasons(report) == {"nn.conv2d": "kernel of 1; need 3"}
    assert ("conv2d", (1, 8, 6, 6), [1, 1, 1, 1]) in seen
    assert {op for op, _, _ in seen} == {"conv2d", "binary", "unary", "softmax"}


@pytest.mark.parametrize("answer", [None, True])
def test_predicate_that_agrees_changes_nothing(answer: bool | None) -> None:
    byoc.register_ext_op("conv2d")(lambda node, call: answer)
    assert composites(byoc.partition_for_ext(network())) == composites(
        byoc.partition_for_ext(network(), predicate=lambda node, call: None)
    )


def test_registered_predicates_narrow() -> None:
    @byoc.register_ext_op("relax.nn.conv2d")
    def few_channels(node: Node, call: Any) -> str | None:
        return f"{node.shape[1]} channels" if node.shape[1] > 4 else None

    @byoc.register_ext_op("relax.nn.relu")
    def never(node: Node, call: Any) -> bool:
        return False

    _, report = partition_with_report(network())
    assert reasons(report)["nn.conv2d"] == "8 channels"
    assert reasons(report)["nn.relu"] == "refused by predicate never"
    byoc.unregister_ext_op("conv2d")
    byoc.unregister_ext_op("relu")
    assert not partition_with_report(network())[1].left


def test_predicate_that_fails_is_named() -> None:
    @byoc.register_ext_op("relax.nn.conv2d")
    def broken(node: Node, call: Any) -> str | None:
        raise KeyError("oops")

    with pytest.raises(ControlError, match=r"predicate broken failed on relax.nn.conv2d .*oops"):
        byoc.partition_for_ext(network())
    with pytest.raises(ControlError, match="returned int"):
        byoc.partition_for_ext(network(), skip_ops=["conv2d"], predicate=lambda node, call: 3)


def test_registered_builder_widens_and_the_kernel_computes_it() -> None:
    def square(call: Any) -> Candidate:
        (x,) = call.args
        if len(x.ty.shape) != 2:
            raise Unfit(f"rank {len(x.ty.shape)}; need 2")
        shape = tuple(int(extent) for extent in x.ty.shape)
        operands = tuple(Operand(role, shape, "float32") for role in ("lhs", "rhs"))
        return Candidate(Node("binary", operands, shape, "float32", {"kind": "mul"}), (x, x))

    def build(emit: Any, x: Any) -> Any:
        return emit(op.square(emit(op.matmul(x, constant(random(8, 8))))))

    byoc.register_ext_op("relax.square", build=square)
    mod, report = partition_with_report(relax_module(build, (4, 8)))
    assert composites(mod) == ["ext.matmul", "ext.mul"] and not report.left
    from tvm import relax

    byoc._autoload()
    machine = relax.VirtualMachine(
        tvm.compile(relax.transform.RunCodegen()(mod), "llvm"), tvm.cpu()
    )
    x = random(4, 8, seed=5)
    result = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(result, np.square(x @ random(8, 8)), rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------------- demands


def test_require_full_lists_blockers() -> None:
    _, report = partition_with_report(network(), skip_ops=["softmax"])
    with pytest.raises(CoverageError) as caught:
        report.require(full=True)
    assert str(caught.value).splitlines() == [
        "1 of 5 operators stay with TVM; need none",
        "  1 x relax.nn.softmax: skipped by operator relax.nn.softmax (lv4)",
    ]
    partition_with_report(network())[1].require(full=True, min_coverage=1.0)


def test_min_coverage_counts_work() -> None:
    _, report = partition_with_report(network(), skip_ops=["softmax"])
    report.require(min_coverage=1.0)  # softmax has no multiply-accumulates
    _, report = partition_with_report(network(), predicate=lambda n, c: n.shape[1] != 4 or "no")
    share = report.offloaded_macs / report.macs
    assert 0.5 < share < 1
    report.require(min_coverage=share)
    with pytest.raises(CoverageError, match=r"% of MACs are offloaded; need 99 %") as caught:
        report.require(min_coverage=0.99)
    assert "1 x relax.nn.conv2d: no (" in str(caught.value)
    Report((), ()).require(min_coverage=1.0, full=True)
