"""Names from a model may hold anything; none of it may reach the C source raw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import byoc
from byoc.frontends.onnx.measured_model import draw_inputs
from tests.conftest import CompiledCase
from tests.reference import assert_agrees, onnxruntime_outputs

HOSTILE = [
    'a"b',
    "it's",
    "two\nlines",
    "end */ comment",
    "/* begin",
    "x; system(1);",
    "back\\slash",
    "trailing\\",
    "Größe名前",
    "#define int long",
    "??/trigraph",
    "%s%n",
    "return",
]


def hostile_model() -> onnx.ModelProto:
    """conv, ReLU and residual add per name; nodes, tensors, weights, input and output carry it."""
    draw = np.random.default_rng(3)
    nodes, weights = [], []
    current = f"input {HOSTILE[0]} {HOSTILE[3]} {HOSTILE[8]}"
    inputs = [helper.make_tensor_value_info(current, TensorProto.FLOAT, [1, 8, 9, 9])]
    for name in HOSTILE:
        weight = draw.standard_normal((8, 8, 3, 3), dtype=np.float32) * np.float32(0.1)
        weights.append(numpy_helper.from_array(weight, f"weight {name}"))
        nodes += [
            helper.make_node(
                "Conv",
                [current, f"weight {name}"],
                [f"conv {name}"],
                name=f"node conv {name}",
                pads=[1, 1, 1, 1],
            ),
            helper.make_node("Relu", [f"conv {name}"], [f"relu {name}"], name=f"node relu {name}"),
            helper.make_node("Add", [f"relu {name}", current], [f"sum {name}"], name=f"add {name}"),
        ]
        current = f"sum {name}"
    outputs = [helper.make_tensor_value_info(current, TensorProto.FLOAT, [1, 8, 9, 9])]
    graph = helper.make_graph(nodes, 'graph "*/', inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


@pytest.fixture(scope="module")
def hostile(compiled_case: Callable[..., CompiledCase]) -> CompiledCase:
    return compiled_case("hostile", hostile_model())


def test_compiles_and_runs(hostile: CompiledCase) -> None:
    assert hostile.report.offloaded_macs == hostile.report.macs > 0
    model = byoc.load(hostile.library)
    assert [info.name for info in model.inputs] == list(hostile.inputs)
    assert_agrees(model.run(hostile.inputs), hostile.expected)


def test_no_name_is_raw_in_the_source(tmp_path: Path) -> None:
    byoc.compile(hostile_model(), dump_code=tmp_path)
    sources = list(tmp_path.rglob("*.c"))
    assert sources
    for source in sources:
        text = source.read_bytes()
        assert text.isascii()
        for name in HOSTILE[:-1]:  # the last is a C keyword that the source uses itself
            assert name.encode() not in text, (name, source)


def test_names_that_differ_only_in_odd_letters_stay_apart(tmp_path: Path) -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Sub", ["x?", "x!"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
            "twins",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 64]) for n in ("x?", "x!")],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, [4, 64])],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    model.ir_version = 8
    byoc.compile(model, tmp_path / "twins.so")
    inputs = draw_inputs(model)
    result = byoc.load(tmp_path / "twins.so").run(inputs)
    assert_agrees(result, onnxruntime_outputs(model, inputs))
