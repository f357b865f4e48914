"""An operator that nobody built in: a user's record, kernel and builder, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from onnx import helper as oh
from tvm import relax

import byoc
from byoc.errors import ControlError
from byoc.library import Kernel, Library, LibraryError, Link, Operator
from byoc.patterns.registry import Candidate, Unfit
from byoc.patterns.row import candidate
from codegen_cc import operator
from codegen_cc.libraries import registry

SOURCE = """
#include "own.h"
#include <math.h>

int own_sinh(const float* x, float scale, int64_t size, float* y) {
  for (int64_t i = 0; i < size; i++) y[i] = scale * sinhf(x[i]);
  return 0;
}
"""
HEADER = """
#include <stdint.h>
int own_sinh(const float* x, float scale, int64_t size, float* y);
"""
SINH = Operator("scaled_sinh", roles=("input",), attributes={"scale": "a number"})
ARGUMENTS = ("input", "attr.scale", "size", "output")


pytestmark = pytest.mark.usefixtures("forget_operators")


def library(folder: Path, *operators: Operator, name: str = "own", **fields) -> Library:
    (folder / "own.c").write_text(SOURCE)
    (folder / "own.h").write_text(HEADER)
    link = Link(headers=("own.h",), include_dirs=(folder,), sources=(folder / "own.c",))
    kernel = Kernel("scaled_sinh", "own_sinh", **{"arguments": ARGUMENTS, **fields})
    return Library(
        name, version="1", abi=1, link=link, operators=operators or (SINH,), kernels=[kernel]
    )


def build(call: relax.Call) -> Candidate:
    return candidate("scaled_sinh", call, [("input", call.args[0])], {"scale": 1.0})


def model():
    graph = oh.make_graph(
        [
            oh.make_node("Relu", ["x"], ["r"]),
            oh.make_node("Sinh", ["r"], ["s"]),
            oh.make_node("Relu", ["s"], ["y"]),
        ],
        "sinh",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT, [4, 5])],
        [oh.make_tensor_value_info("y", TensorProto.FLOAT, [4, 5])],
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=9)


def test_a_users_operator_is_part_of_a_region(tmp_path: Path) -> None:
    own = library(tmp_path)
    byoc.register_ext_op("relax.sinh", build=build)
    done = byoc.compile(
        model(), tmp_path / "m.so", libraries=[own, "builtin", "scaled_sinh=own"], min_bytes=0
    )
    assert done.report.offloaded == done.report.operators == 3 and len(done.report.regions) == 1
    assert "ext.scaled_sinh" in str(done.report.to_json())
    x = np.random.default_rng(3).standard_normal((4, 5)).astype(np.float32)
    (found,) = byoc.load(tmp_path / "m.so").run({"x": x}).values()
    np.testing.assert_allclose(found, np.sinh(np.maximum(x, 0)), rtol=1e-6)


def test_packed_functions_are_operators_that_relax_has_no_name_for(tmp_path: Path) -> None:
    """Of two functions each has a builder of its own."""
    (tmp_path / "own.c").write_text(SOURCE)
    (tmp_path / "own.h").write_text(HEADER)
    link = Link(headers=("own.h",), include_dirs=(tmp_path,), sources=(tmp_path / "own.c",))
    names = ("first", "second")
    factors = zip(names, (2.0, 3.0), strict=True)
    kernels = [Kernel(n, "own_sinh", ("input", by, "size", "output")) for n, by in factors]
    operators = [Operator(name, roles=("input",)) for name in names]
    own = Library("own", version="1", abi=1, link=link, operators=operators, kernels=kernels)
    for name in names:

        def called(call: relax.Call, name: str = name) -> Candidate:
            if call.args[0].global_symbol != name:
                raise Unfit(f"{call.args[0].global_symbol}; need {name}")
            return candidate(name, call, [("input", call.args[1].fields[0])])

        byoc.register_ext_op("relax.call_dps_packed", build=called)
    blocks, kind = relax.BlockBuilder(), relax.TensorType((4, 5), "float32")
    x = relax.Var("x", kind)
    with blocks.function("main", [x]):
        with blocks.dataflow():
            y = blocks.emit(relax.op.call_dps_packed("first", (x,), out_ty=kind))
            y = blocks.emit_output(relax.op.call_dps_packed("second", (y,), out_ty=kind))
        blocks.emit_func_output(y)
    done = byoc.compile(blocks.get(), tmp_path / "m.so", libraries=[own], min_bytes=0)
    assert done.report.offloaded == done.report.operators == 2 and len(done.report.regions) == 1
    x = np.random.default_rng(3).standard_normal((4, 5)).astype(np.float32)
    found = byoc.load(tmp_path / "m.so")(x)
    np.testing.assert_allclose(found, 3 * np.sinh(2 * np.sinh(x)), rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda call: None, "builder <lambda> of relax.sinh gave None; need what"),
        (lambda call: call.nope, "builder <lambda> failed on relax.sinh: AttributeError"),
        (5, "build is 5; need a function of a call"),
    ],
)
def test_builders_that_fail(build: object, said: str, tmp_path: Path) -> None:
    own = library(tmp_path)
    with pytest.raises(ControlError, match=said):
        byoc.register_ext_op("relax.sinh", build=build)
        byoc.compile(model(), libraries=[own, "builtin"])


def test_without_its_library_it_stays_with_tvm(tmp_path: Path) -> None:
    library(tmp_path)
    byoc.register_ext_op("relax.sinh", build=build)
    report = byoc.compile(model(), min_bytes=0).report
    (left,) = report.left
    assert left.reason == "operator scaled_sinh; need one that docs/libraries.md lists"


def test_an_attribute_that_is_not_told_is_refused(tmp_path: Path) -> None:
    own = library(tmp_path, arguments=("input", 1.0, "size", "output"))
    byoc.register_ext_op("relax.sinh", build=build)
    (left,) = byoc.compile(model(), libraries=[own, "builtin"], min_bytes=0).report.left
    assert "own: scale is 1.0, which own_sinh is not told" in left.reason
    fixed = library(tmp_path, arguments=("input", 1.0, "size", "output"), attributes={"scale": 1.0})
    registry._loaded.clear()
    assert byoc.compile(model(), libraries=[fixed, "builtin"], min_bytes=0).report.left == ()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (Operator("matmul", roles=("lhs", "rhs")), "there is an operator of that name"),
        (Operator("a b", roles=("input",)), "'a b' is no name; need a C identifier"),
        (Operator("a", roles=("in put",)), "'in put' is no name"),
        (Operator("a", roles=("input", "input")), "a name stands for two"),
        (Operator("a", roles=("input",), results=("input",)), "a name stands for two"),
    ],
)
def test_bad_records(tmp_path: Path, record: Operator, message: str) -> None:
    before = operator.operator_of("matmul")
    with pytest.raises(LibraryError, match=message) as raised:
        library(tmp_path, record)
    assert "\n" not in str(raised.value)
    assert operator.operator_of("matmul") is before


def test_two_libraries_cannot_have_one_operator(tmp_path: Path) -> None:
    library(tmp_path)
    library(tmp_path)  # the same file, read again
    with pytest.raises(LibraryError, match="library own has an operator of that name"):
        library(tmp_path, name="other")


def test_an_unknown_operator_is_named() -> None:
    with pytest.raises(LibraryError, match="no operator is called 'matmull'; need one of conv2d"):
        operator.operator_of("matmull")
