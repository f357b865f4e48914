"""Products of matrices that are multiplied by another tensor: gated layers in all precisions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import byoc
from byoc.errors import ByocError
from models.builder import GraphBuilder
from models.weight_only import weight_only
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model

_ROWS, _WIDTH, _INNER = 37, 64, 96


def gated(first: str = "gate", bias: bool = False) -> onnx.ModelProto:
    """x G times the sigmoid of that, times x U, times D; the product that stands first may vary."""
    graph = GraphBuilder("gated", 3)
    x = graph.input("x", ("rows", _WIDTH))
    made = {}
    for name in ("gate", "up") if first == "gate" else ("up", "gate"):
        made[name] = graph.op("MatMul", x, graph.normal((_WIDTH, _INNER), 0.2))
        if bias:
            made[name] = graph.op("Add", made[name], graph.normal((_INNER,), 0.3))
    gate = graph.op("Mul", made["gate"], graph.op("Sigmoid", made["gate"]))
    y = graph.op("MatMul", graph.op("Mul", gate, made["up"]), graph.normal((_INNER, _WIDTH), 0.2))
    graph.output(y, "y", ("rows", _WIDTH))
    return graph.build()


def _run(model: onnx.ModelProto, folder: Path, **options: object) -> tuple[list[str], dict, dict]:
    """Operators of the library, its outputs, and those of ONNX Runtime."""
    report = byoc.compile(model, folder / "m.so", **options).report
    assert len(report.regions) == 1 and report.left == ()
    x = np.random.default_rng(2).standard_normal((_ROWS, _WIDTH)).astype(np.float32)
    found = byoc.load(folder / "m.so").run({"x": x})
    return [n.operator for n in report.graph.nodes], found, onnxruntime_outputs(model, {"x": x})


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("first", ["gate", "up"])
def test_the_later_product_takes_the_other_one(first: str, bias: bool, tmp_path: Path) -> None:
    operators, found, want = _run(gated(first, bias), tmp_path)
    assert not any("ext.mul" in name or name.startswith("ext.silu") for name in operators)
    assert sum(name.endswith("factor") for name in operators) == 1
    assert_agrees(found, want)


@pytest.mark.parametrize("precision", ["bf16", "bf16x3"])
def test_in_bfloat16(precision: str, tmp_path: Path) -> None:
    try:
        operators, found, want = _run(gated(), tmp_path, precision=precision)
    except ByocError as err:
        assert precision == "bf16x3" and "AMX" in str(err)  # refused where it gains nothing
        return
    assert sum(name.endswith("factor") for name in operators) == 1
    width = np.ptp(want["y"])
    assert (
        0 < np.abs(found["y"] - want["y"]).max() < (2e-2 if precision == "bf16" else 1e-4) * width
    )


@pytest.mark.parametrize("bits", [4, 8])
def test_with_weights_of_few_bits(bits: int, tmp_path: Path) -> None:
    operators, found, want = _run(weight_only(gated(), bits), tmp_path)
    assert sum(name.endswith("factor") for name in operators) == 1
    np.testing.assert_allclose(found["y"], want["y"], atol=1e-4 * np.ptp(want["y"]))


def test_a_residual_and_then_a_factor(tmp_path: Path) -> None:
    """A kernel has one of them: the second stays an operator of its own."""
    draw = np.random.default_rng(5)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "a"], ["s"]),
        helper.make_node("Mul", ["s", "b"], ["y"]),
    ]
    sizes = {"x": [5, 8], "a": [5, 8], "b": [5, 8]}
    model = onnx_model(nodes, sizes, ["y"], {"w": draw.standard_normal((8, 8)).astype(np.float32)})
    report = byoc.compile(model, tmp_path / "m.so", exact=True).report
    operators = [node.operator for node in report.graph.nodes]
    assert {"ext.matmul_residual", "ext.mul"} <= set(operators) and report.left == ()
    inputs = {n: draw.standard_normal(s).astype(np.float32) for n, s in sizes.items()}
    inputs["b"][0, :2] = np.nan, np.inf
    assert_agrees(byoc.load(tmp_path / "m.so").run(inputs), onnxruntime_outputs(model, inputs))
