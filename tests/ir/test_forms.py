"""Nodes whose converter would give a wrong result are refused by name while compiling."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from byoc.cli.compile import compile_verb
from byoc.errors import ControlError, UnsupportedForm
from byoc.frontends.onnx import import_onnx, prepare
from byoc.frontends.onnx.checked_import import inferred_types
from byoc.frontends.onnx.wrong_forms import Form, Operand, WrongForm, wrong_forms
from tests.ir.graphs import onnx_model, operators


def imported(model: onnx.ModelProto, **options: Any) -> Any:
    return import_onnx(prepare(model), **options)


def training() -> onnx.ModelProto:
    """A form of the table: a BatchNormalization that trains."""
    node = helper.make_node(
        "BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "mm", "vv"], "bn", training_mode=1
    )
    ones = {name: np.ones(3, "float32") for name in "sbmv"}
    return onnx_model([node], {"x": [2, 3, 4, 4]}, ["y", "mm", "vv"], ones)


def narrowed(name: str = "narrow") -> onnx.NodeProto:
    """An attribute without a converter."""
    return helper.make_node("Cast", ["x"], ["y"], name, to=TensorProto.FLOAT16, saturate=0)


def test_attribute_that_no_converter_reads() -> None:
    model = onnx_model([narrowed()], {"x": [4]}, ["y"], opset=19)
    with pytest.raises(UnsupportedForm, match=r"Cast \(node 'narrow'\): attribute saturate=0 has"):
        imported(model)


def test_default_value_of_an_unread_attribute_is_fine() -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT16, saturate=1)
    assert operators(imported(onnx_model([node], {"x": [4]}, ["y"], opset=19))) == ["relax.astype"]


def test_attribute_that_the_operator_does_not_have() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], "r", slope=2.0)
    with pytest.raises(UnsupportedForm, match=r"Relu \(node 'r'\): has no attribute 'slope'"):
        imported(onnx_model([node], {"x": [4]}, ["y"]))


def test_operator_of_another_domain() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], "r", domain="mine")
    model = onnx_model([node], {"x": [4]}, ["y"])
    model.opset_import.append(helper.make_opsetid("mine", 1))
    with pytest.raises(UnsupportedForm, match=r"Relu \(node 'r'\): of domain 'mine'"):
        imported(model)


def test_input_that_no_converter_reads() -> None:
    """Dropout drops at run time where its third input says so; only a constant False is known."""
    node = helper.make_node("Dropout", ["x", "", "t"], ["y"], "d")
    model = onnx_model([node], {"x": [4], "t": []}, ["y"])
    model.graph.input[1].type.tensor_type.elem_type = TensorProto.BOOL
    with pytest.raises(UnsupportedForm, match=r"Dropout \(node 'd'\): input 't' has no"):
        imported(model)
    del model.graph.input[1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "t"))
    with pytest.raises(UnsupportedForm, match="input 't' has no"):
        imported(model)


@pytest.mark.parametrize("place", [0, 1])
def test_nodes_of_branches_are_checked(place: int) -> None:
    def branch(name: str, node: onnx.NodeProto) -> onnx.GraphProto:
        tail = helper.make_node("Cast", [node.output[0]], [name], to=TensorProto.FLOAT)
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])
        return helper.make_graph([node, tail], name, [], [info])

    plain = helper.make_node("Abs", ["x"], ["a"])
    nodes = [plain, narrowed("inner")] if place else [narrowed("inner"), plain]
    branches = dict(zip(("then_branch", "else_branch"), map(branch, "pq", nodes), strict=True))
    node = helper.make_node("If", ["c"], ["z"], "if", **branches)
    model = onnx_model([node], {"c": [], "x": [4]}, ["z"], opset=19)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.BOOL
    with pytest.raises(UnsupportedForm, match=r"\(node 'inner'\): attribute saturate=0"):
        imported(model)


def test_form_of_the_table() -> None:
    with pytest.raises(UnsupportedForm, match=r"BatchNormalization \(node 'bn'\): .*allow-wrong"):
        imported(training())


def test_whoever_insists_is_warned() -> None:
    with pytest.warns(UserWarning, match=r"BatchNormalization \(node 'bn'\): .*all the same"):
        assert "relax.nn.batch_norm" in operators(
            imported(training(), allow_wrong=["BatchNormalization"])
        )
    with pytest.raises(UnsupportedForm):
        imported(training(), allow_wrong=["Resize"])
    with pytest.raises(ControlError, match=r"'Resise' is no ONNX operator; .*'Resize'"):
        imported(training(), allow_wrong=["Resise"])


def test_command_line(tmp_path: Path) -> None:
    file, library = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(training(), file)
    call = [str(file), "-o", str(library)]
    failed = CliRunner().invoke(compile_verb, call)
    assert isinstance(failed.exception, UnsupportedForm) and not library.exists()
    with pytest.warns(UserWarning, match="all the same"):
        done = CliRunner().invoke(compile_verb, [*call, "--allow-wrong", "BatchNormalization"])
    assert done.exit_code == 0 and library.exists(), done.output


# ---------------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (lambda x: relax.op.astype(x, "float64"), r"gives float64 for output 'y'; ONNX .* float32"),
        (lambda x: relax.op.reshape(x, [3, 2]), r"gives shape \[3, 2\] .* infers \[2, 3\]"),
        (lambda x: relax.op.reshape(x, [6]), r"gives shape \[6\] for output 'y'; ONNX .* \[2, 3\]"),
    ],
)
def test_result_of_another_type(
    wrong: Callable[[relax.Expr], relax.Expr], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A converter that errs in the dtype, an extent or the rank of its result."""
    converter = staticmethod(lambda bb, inputs, attr, params: wrong(inputs[0]))
    monkeypatch.setattr(onnx_frontend.Tanh, "_impl_v7", converter)
    node = helper.make_node("Tanh", ["x"], ["y"], "t")
    with pytest.raises(UnsupportedForm, match=rf"Tanh \(node 't'\): {found}"):
        imported(onnx_model([node], {"x": [2, 3]}, ["y"]))


def test_claims_of_the_model_are_not_believed() -> None:
    """ONNX Runtime warns about a wrong shape of an output or an inner value, and goes on."""
    nodes = [helper.make_node("Tanh", ["x"], ["h"]), helper.make_node("Abs", ["h"], ["y"])]
    model = onnx_model(nodes, {"x": [2, 3]}, ["y"])
    for name in ("h", "y"):
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, [7])
        model.graph.value_info.append(value)
    model.graph.output[0].CopyFrom(value)
    shapes = {
        name: [dim.dim_value for dim in type_.tensor_type.shape.dim]
        for name, type_ in inferred_types(model).items()
    }
    assert shapes == {"h": [2, 3], "y": [2, 3]}
    assert [int(dim) for dim in import_onnx(model)["main"].ret_ty.shape] == [2, 3]


# ---------------------------------------------------------------------- the table


def test_conditions_of_an_entry() -> None:
    entry = WrongForm(
        "Op",
        "because",
        opsets=(11, 12),
        attributes={"mode": ["a"], "axes": [[0, 1]]},
        dtypes={"0": ["float32"]},
        any_dtype=["int64"],
        ranks={"0": [4]},
        inputs={"1": "computed", "2": "absent"},
        outputs=2,
    )
    attributes = {"mode": b"a", "axes": (0, 1)}
    operands = (Operand("float32", 4), Operand("int64", 1))
    form = Form("Op", 11, attributes, operands, 2)
    assert entry.matches(form)
    for change in (
        {"operator": "Other"},
        {"opset": 10},
        {"opset": 13},
        {"attributes": {**attributes, "mode": b"b"}},
        {"operands": (Operand("float64", 4), operands[1])},
        {"operands": (Operand("float32", 3), operands[1])},
        {"operands": (operands[0], Operand("int64", 1, constant=True))},
        {"operands": (*operands, Operand("int64", 1))},
        {"outputs": 1},
        {"operands": (operands[0], Operand("int32", 1))},
    ):
        assert not entry.matches(Form(**{**vars(form), **change})), change


def test_entries_name_what_operators_have() -> None:
    """Operators that have a converter, attributes and places that the schemas have."""
    converters = onnx_frontend._get_convert_map()
    for operator, entries in wrong_forms().items():
        if operator == "*":
            assert all(entry.any_dtype and entry.reason for entry in entries)
            continue
        assert operator in converters
        schema = onnx.defs.get_schema(operator)
        for entry in entries:
            assert entry.reason
            assert set(entry.attributes) <= set(schema.attributes), entry
            places = {*entry.dtypes, *entry.ranks, *entry.inputs}
            assert all(int(place) < max(len(schema.inputs), 1) for place in places), entry
            assert entry.outputs <= len(schema.outputs)
