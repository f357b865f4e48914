"""Inputs that are fixed when compiling: constants, whatever their dtype, and refused otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import byoc
from byoc.bench.profile import profile
from byoc.bench.subjects import load_subject
from byoc.cli import cli
from byoc.compiler.tune import tune
from byoc.errors import ByocError, ControlError, InputError
from byoc.frontends.onnx import import_model
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import random

TYPES = {
    "x": (TensorProto.FLOAT, ["batch", 4]),
    "scale": (TensorProto.FLOAT, [1, 4]),
    "half": (TensorProto.FLOAT16, []),
    "count": (TensorProto.INT32, [1]),
    "flag": (TensorProto.BOOL, [1]),
    "rows": (TensorProto.FLOAT, ["batch", 4]),
}


def model() -> onnx.ModelProto:
    """x times scale, half and count, and rows more where the flag is set."""

    def branch(name: str, node: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph([node], name, [], [helper.make_empty_tensor_value_info("r")])

    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["scaled"]),
        helper.make_node("Cast", ["half"], ["factor"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["count"], ["times"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["scaled", "factor"], ["some"]),
        helper.make_node("Mul", ["some", "times"], ["all"]),
        helper.make_node(
            "If",
            ["flag"],
            ["y"],
            then_branch=branch("more", helper.make_node("Add", ["all", "rows"], ["r"])),
            else_branch=branch("less", helper.make_node("Sub", ["all", "x"], ["r"])),
        ),
    ]
    inputs = [helper.make_tensor_value_info(name, *of) for name, of in TYPES.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    graph = helper.make_graph(nodes, "g", inputs, [output])
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


#: What users give, and the array that it is.
GIVEN = {
    "scale": (2, np.full((1, 4), 2, np.float32)),
    "half": (np.float16(0.5), np.array(0.5, np.float16)),
    "count": ([3], np.array([3], np.int32)),
    "flag": (True, np.array([True])),
}


@pytest.mark.parametrize("flag", [True, False])
def test_numbers_lists_and_arrays(flag: bool, tmp_path: Path) -> None:
    fixed: dict[str, Any] = {name: given for name, (given, _) in GIVEN.items()} | {"flag": flag}
    done = byoc.compile(model(), tmp_path / "m.so", fixed_inputs=fixed, min_bytes=0)
    assert not done.report.left
    assert len(done.report.regions) == 1
    loaded = byoc.load(tmp_path / "m.so")
    assert [info.name for info in loaded.inputs] == ["x", "rows"]
    assert {f.input.name: f.value for f in loaded.metadata.fixed}["flag"] is flag
    feed = {"x": random(3, 4), "rows": random(3, 4, seed=2)}
    constant = {name: array for name, (_, array) in GIVEN.items()} | {"flag": np.array([flag])}
    assert_agrees(loaded.run(feed), onnxruntime_outputs(model(), feed | constant))
    # What the library says of fixed inputs is enough to compare it.
    assert byoc.verify(model(), tmp_path / "m.so").holds


def test_an_array_gives_its_axes_to_others(tmp_path: Path) -> None:
    fixed = {"rows": random(5, 4, seed=2), **{name: given for name, (given, _) in GIVEN.items()}}
    done = byoc.compile(model(), tmp_path / "m.so", fixed_inputs=fixed, min_bytes=0, verify=True)
    assert [info.shape for info in done.metadata.inputs] == [(5, 4)]
    assert not done.report.left
    with pytest.raises(InputError, match=r"input rows: .*given when compiled; need its array"):
        byoc.verify(model(), tmp_path / "m.so")
    with pytest.raises(InputError, match=r"flag: bool\[1\]: True; it cannot be another here"):
        byoc.verify(model(), tmp_path / "m.so", fixed | {"flag": np.array([False])})
    assert byoc.verify(model(), tmp_path / "m.so", fixed).holds


def test_a_number_takes_the_sizes_of_input_shapes() -> None:
    done = byoc.compile(model(), None, {"rows": [6, 4]}, fixed_inputs={"rows": 0.25})
    assert [info.shape for info in done.metadata.inputs if info.name == "x"] == [(6, 4)]


def test_a_fixed_input_that_is_an_output(tmp_path: Path) -> None:
    same = model()
    same.graph.output.append(helper.make_tensor_value_info("count", TensorProto.INT32, [1]))
    fixed = {"count": 7}
    byoc.compile(same, tmp_path / "m.so", fixed_inputs=fixed)
    loaded = byoc.load(tmp_path / "m.so")
    feed = {"x": random(2, 4), "rows": random(2, 4), "scale": random(1, 4)}
    feed |= {"half": np.array(2, np.float16), "flag": np.array([False])}
    expected = onnxruntime_outputs(same, feed | {"count": np.array([7], np.int32)})
    assert_agrees(loaded.run(feed), expected)


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"none": 1}, "'none' is not in the model; its inputs are 'x', 'scale'"),
        ({"flag": 2}, "'flag' is of bool and is fixed to 2; need True or False"),
        ({"count": 1.5}, "'count' is of int32 and is fixed to 1.5; need a whole number"),
        ({"count": 1 << 40}, "'count' is of int32 and is fixed to 1099511627776"),
        ({"half": 1e6}, "'half' is of float16 and is fixed to 1000000.0; need a number"),
        ({"scale": "2"}, "'scale' is of float32 and is fixed to '2'; need a number"),
        ({"scale": [[1], [2, 3]]}, "'scale' is of float32 and is fixed to"),
        ({"scale": np.ones((1, 4))}, "an array of float64; need float32"),
        ({"scale": [1.0, 2.0]}, r"an array of shape \[2\]; need \[1, 4\]"),
        ({"rows": 1.0}, r"'rows' has the shape \[batch, 4\] .* give an array, or its sizes"),
        ([1], "fixed_inputs is of type list; need a dictionary"),
    ],
)
def test_refused(fixed: Any, message: str) -> None:
    with pytest.raises(ByocError, match=message) as error:
        byoc.compile(model(), fixed_inputs=fixed)
    assert "\n" not in str(error.value)


def test_a_module_has_no_inputs_to_fix() -> None:
    module = import_model(model(), {"x": [2, 4]}).module
    with pytest.raises(InputError, match="fixed_inputs are for ONNX models"):
        byoc.compile(module, fixed_inputs={"x": 1.0})
    with pytest.raises(ControlError, match="allow_wrong: Resize: this model has no ONNX operators"):
        byoc.compile(module, allow_wrong=["Resize"])


def test_command_line(tmp_path: Path) -> None:
    file, library = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(model(), file)
    given = ["--fix-input", "flag=true", "--fix-input", "scale=0.5", "--fix-input", "count=2"]
    run = CliRunner().invoke(cli, ["compile", str(file), "-o", str(library), *given, "--verify"])
    assert run.exit_code == 0, run.output
    shown = CliRunner().invoke(cli, ["inspect", str(library)]).output
    assert "flag: bool[1]: True" in shown
    assert "scale: float32[1, 4]: 0.5" in shown
    assert CliRunner().invoke(cli, ["partition", str(file), *given]).exit_code == 0
    wrong = CliRunner().invoke(cli, ["compile", str(file), "-o", str(library), "--fix-input", "f"])
    assert wrong.exit_code == 2
    assert "need NAME=VALUE" in wrong.output


def test_what_measures_fixes_inputs_too(tmp_path: Path) -> None:
    fixed, shapes = {"flag": True, "scale": 0.5, "count": 2}, {"x": [3, 4], "rows": [3, 4]}
    onnx.save(model(), tmp_path / "m.onnx")
    subject = load_subject(str(tmp_path / "m.onnx"), shapes, fixed_inputs=fixed)
    assert set(subject.inputs) == {"x", "half", "rows"}
    assert profile(subject, 1, 1, {"min_bytes": 0}).calls
    assert not tune(model(), tmp_path / "db.json", shapes, fixed_inputs=fixed).skipped


def test_errors_of_layers_with_fixed_inputs() -> None:
    fixed = {name: given for name, (given, _) in GIVEN.items()}
    found = byoc.compare(model(), None, {"x": [2, 4]}, fixed_inputs=fixed, min_bytes=0)
    assert found.error < 1e-5
