"""Results in place of operands: less memory, and nothing is overwritten that is still needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
import codegen_cc.plan.builder
from codegen_cc.plan.builder import Plan
from codegen_cc.plan.call import Call
from tests.ir.test_concat_in_place import CHANNELS
from tests.ir.test_data_movement import Images, plan_of
from tests.reference import assert_agrees, onnxruntime_outputs

ELEMENTWISE = ("ext_unary", "ext_binary", "ext_softmax", "ext_layer_norm")


def chain() -> onnx.ModelProto:
    """Each result is read once, by the next node."""
    net = Images()
    net.add("Mul", [net.conv("x", "a", CHANNELS, 24), net.conv("x", "b", CHANNELS, 24)], ["c"])
    net.add("Sigmoid", ["c"], ["d"])
    net.add("Softmax", ["d"], ["e"], axis=1)
    net.add("Exp", ["e"], ["f"])
    net.add("Tanh", ["f"], ["g"])
    net.conv("g", "y", 24, 8, 3)
    return net.model("y")


def read_later() -> onnx.ModelProto:
    """tanh(c) - c: the operand of the first node is read by the second one, too."""
    net = Images()
    net.add("Mul", [net.conv("x", "a", CHANNELS, 24), net.conv("x", "b", CHANNELS, 24)], ["c"])
    net.add("Tanh", ["c"], ["d"])
    net.add("Sub", ["d", "c"], ["e"])
    net.conv("e", "y", 24, 8)
    return net.model("y")


def both_operands() -> onnx.ModelProto:
    """c / c, and a square."""
    net = Images()
    net.add("Mul", [net.conv("x", "a", CHANNELS, 24), net.conv("x", "b", CHANNELS, 24)], ["c"])
    net.add("Mul", ["c", "c"], ["d"])
    net.conv("d", "y", 24, 8)
    return net.model("y")


def outputs() -> onnx.ModelProto:
    """The operand leaves the region."""
    net = Images()
    net.add("Relu", ["x"], ["c"])
    net.add("Tanh", ["c"], ["d"])
    net.add("Exp", ["d"], ["y"])
    return net.model("c", "y")


def input_and_constant() -> onnx.ModelProto:
    """Neither is ours to write to."""
    net = Images()
    image = net.random.standard_normal((1, 24, 9, 10), dtype=np.float32)
    net.add("Tanh", ["x"], ["a"])
    net.add("Mul", ["x", net.constant("k", image)], ["b"])
    net.add("Sub", ["a", "b"], ["c"])
    net.add("Mul", ["c", "x"], ["d"])
    net.conv("d", "y", 24, 8)
    return net.model("y")


def part_of_a_whole() -> onnx.ModelProto:
    """A part of a concatenation is read where it lies in the whole, after that has been read."""
    net = Images()
    net.conv("x", "a", CHANNELS, 8)
    net.conv("x", "b", CHANNELS, 8)
    net.add("Concat", ["a", "b"], ["c"], axis=1)
    net.add("Tanh", ["a"], ["d"])
    net.add("Tanh", ["c"], ["e"])
    net.add("Concat", ["e", "d"], ["f"], axis=1)
    net.conv("f", "y", 24, 8)
    return net.model("y")


def repeated() -> onnx.ModelProto:
    """An operand that is repeated is smaller than the result."""
    net = Images()
    net.add("Mul", [net.conv("x", "a", CHANNELS, 24), net.conv("x", "b", CHANNELS, 24)], ["c"])
    net.add("GlobalMaxPool", ["c"], ["d"])
    net.add("Sub", ["c", "d"], ["e"])
    net.conv("e", "y", 24, 8)
    return net.model("y")


#: Network, and how many of its elementwise results take an operand's place.
CASES: dict[str, tuple[Callable[[], onnx.ModelProto], int]] = {
    "chain": (chain, 4),
    "read_later": (read_later, 2),
    "both_operands": (both_operands, 2),
    "outputs": (outputs, 0),
    "input_and_constant": (input_and_constant, 2),
    "part_of_a_whole": (part_of_a_whole, 0),
    "repeated": (repeated, 2),
}


def in_place(plan: Plan) -> list[Call]:
    """Calls that write where they read."""
    found = [call for call in plan.calls if call.function in ELEMENTWISE]
    return [c for c in found if sum(t.buffer is c.writes[0].buffer for t in c.reads()) > 1]


@pytest.mark.parametrize("name", CASES)
def test_what_dies_is_overwritten(name: str, tmp_path: Path) -> None:
    build, expected = CASES[name]
    model = build()
    plan = plan_of(model)
    found = in_place(plan)
    assert len(found) == expected, [call.comment for call in found]
    assert all(call.writes[0].buffer.kind == "arena" for call in found)
    compiled = byoc.compile(model, tmp_path / "m.so")
    assert len(compiled.report.regions) == 1 and not compiled.report.left
    inputs = {"x": np.random.default_rng(1).standard_normal((1, 24, 9, 10), dtype=np.float32)}
    assert_agrees(byoc.load(tmp_path / "m.so").run(inputs), onnxruntime_outputs(model, inputs))


def test_the_arena_is_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    model = chain()
    with_reuse = plan_of(model)
    monkeypatch.setattr(codegen_cc.plan.builder, "write_in_place", lambda calls: None)
    without = plan_of(model)
    assert not in_place(without)
    buffers = len(without.arena) - len(with_reuse.arena)
    assert buffers == len(in_place(with_reuse))
    assert with_reuse.arena_bytes <= without.arena_bytes
