"""Libraries whose inputs and outputs are float16 or bfloat16: arrays, files, tools, and C.

Powers of two without a sign, by which blocks are scaled, can be inputs, too.
"""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
from click.testing import CliRunner
from onnx import TensorProto, helper

import byoc
from byoc.cli import cli
from byoc.compiler.standalone import compile_standalone
from codegen_cc.dtypes import DTYPES, KERNEL_HALVES
from tests.deploy.standalone_api import Instance
from tests.models.halves import ONNX_TYPES, rounded

SHAPE = (6, 8)


def network(dtype: str, kept: bool = False, rows: int | str = SHAPE[0]) -> onnx.ModelProto:
    """relu(x w); with ``kept``, an operator that TVM computes stands behind it."""
    kind = ONNX_TYPES[dtype]
    weight = rounded(np.random.default_rng(0).normal(0, 0.3, (8, 8)).astype(np.float32), dtype)
    stored = TensorProto(name="w", dims=(8, 8), data_type=kind, raw_data=weight.tobytes())
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Relu", ["product"], ["positive" if kept else "y"]),
    ]
    if kept:
        nodes.append(helper.make_node("Atan", ["positive"], ["y"]))
    value = helper.make_tensor_value_info
    ends = [value("x", kind, [rows, 8])], [value("y", kind, [rows, 8])]
    graph = helper.make_graph(nodes, "halves", *ends, [stored])
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def expected(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    weight = np.frombuffer(model.graph.initializer[0].raw_data, x.dtype).reshape(8, 8)
    y = np.maximum(x.astype(np.float32) @ weight.astype(np.float32), 0)
    return np.arctan(y) if len(model.graph.node) > 2 else y


def drawn(dtype: str) -> np.ndarray:
    return rounded(np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32), dtype)


def assert_right(got: np.ndarray, model: onnx.ModelProto, x: np.ndarray) -> None:
    assert got.dtype == x.dtype
    share = 2.0**-11 if str(x.dtype) == "float16" else 2.0**-8
    want = expected(model, x)
    np.testing.assert_allclose(got.astype(np.float32), want, rtol=share, atol=1e-6)


@pytest.fixture(params=KERNEL_HALVES)
def dtype(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("rows", [6, "n"], ids=["fixed", "symbolic"])
@pytest.mark.parametrize("kept", [False, True], ids=["one region", "with TVM"])
def test_arrays_of_all_kinds(dtype: str, kept: bool, rows: int | str, tmp_path: Path) -> None:
    model, x = network(dtype, kept, rows), drawn(dtype)
    shapes = {"x": [rows, 8]}
    done = byoc.compile(model, tmp_path / "m.so", shapes, min_bytes=0)
    assert done.report.offloaded_macs == done.report.macs > 0
    library = byoc.load(tmp_path / "m.so")
    assert (library.inputs[0].dtype, library.outputs[0].dtype) == (dtype, dtype)
    fixed = x.copy()
    fixed.flags.writeable = False
    turned = np.asfortranarray(x)
    shifted = np.empty(x.nbytes + 2, np.uint8)[2:].view(x.dtype).reshape(SHAPE)
    shifted[...] = x
    nameless = x.view("V2") if dtype == "bfloat16" else x
    for given in (x, fixed, turned, shifted, nameless, tvm.runtime.tensor(x)):
        assert_right(library(given), model, x)
    room = np.empty(SHAPE, x.dtype)
    assert library.run({"x": x}, {"y": room})["y"] is room
    assert_right(room, model, x)


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(dtype: str, rows: int, tmp_path: Path) -> None:
    model, x = network(dtype, rows="n"), drawn(dtype)[:rows]
    byoc.compile(model, tmp_path / "m.so", {"x": ["n", 8]}, min_bytes=0)
    assert_right(byoc.load(tmp_path / "m.so")(x), model, x)


def test_other_dtypes_are_refused(dtype: str, tmp_path: Path) -> None:
    byoc.compile(network(dtype), tmp_path / "m.so", min_bytes=0)
    library = byoc.load(tmp_path / "m.so")
    (other,) = set(KERNEL_HALVES) - {dtype}
    x = drawn(other)
    for given in (x, tvm.runtime.tensor(x), x.astype(np.float32), x.view(np.uint16)):
        with pytest.raises(byoc.InputError, match=f"need {dtype}"):
            library(given)
    good = drawn(dtype)
    for room in (np.empty(SHAPE, x.dtype), np.empty(SHAPE, np.float32)):
        with pytest.raises(byoc.InputError, match=f"need y: {dtype}"):
            library.run({"x": good}, {"y": room})


def test_tools(dtype: str, tmp_path: Path) -> None:
    """``run`` reads and writes files, ``verify`` agrees with a reference, ``inspect`` tells."""
    model, x = network(dtype), drawn(dtype)
    onnx.save(model, tmp_path / "m.onnx")
    library = str(tmp_path / "m.so")

    def said(*arguments: str) -> str:
        done = CliRunner().invoke(cli, [*arguments])
        assert done.exit_code == 0, done.output
        return done.output

    said("compile", str(tmp_path / "m.onnx"), "-o", library)
    np.savez(tmp_path / "in.npz", x=x)
    files = ["-i", str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz")]
    said("run", library, *files)
    with np.load(tmp_path / "out.npz") as file:
        assert_right(file["y"].view(x.dtype), model, x)
    for mode in ("random", "zeros", "ones"):
        shown = json.loads(said("run", library, "--fill-mode", mode, "--print-top", "2", "--json"))
        assert shown["outputs"]["y"]["dtype"] == dtype
    assert dtype in said("inspect", library)
    assert byoc.verify(tmp_path / "m.onnx", library).holds
    assert byoc.verify(tmp_path / "m.onnx", library, tmp_path / "in.npz").holds
    assert byoc.verify(tmp_path / "m.onnx", library, {"x": x}).holds


def test_standalone(dtype: str, tmp_path: Path) -> None:
    model, x = network(dtype), drawn(dtype)
    done = compile_standalone(model, tmp_path / "model", name="half")
    assert len(done.report.regions) == 1 and not done.report.left
    header = (tmp_path / "model/include/half.h").read_text()
    assert dtype in header
    with Instance(tmp_path / "model/lib/libhalf.so") as instance:
        assert [t.dtype for t in instance.inputs] == [list(KERNEL_HALVES).index(dtype) + 6]
        assert instance.inputs[0].bytes == x.nbytes
        got = instance.answers({"x": x})["y"]
    assert_right(got.view(DTYPES[dtype].numpy), model, x)


def test_powers_of_two(tmp_path: Path) -> None:
    """The smallest one is below float32's normal numbers; the byte 255 is NaN."""
    value, kind = helper.make_tensor_value_info, TensorProto.FLOAT8E8M0
    nodes = [
        helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["x"], ["t"]),
    ]
    ends = (
        [value("x", kind, [16, 16])],
        [value("y", TensorProto.FLOAT, None), value("t", kind, None)],
    )
    graph = helper.make_graph(nodes, "powers", *ends)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    done = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(done.report.regions) == 1
    x = np.arange(256, dtype=np.uint8).reshape(16, 16).view(ml_dtypes.float8_e8m0fnu)
    got = byoc.load(tmp_path / "m.so").run({"x": x})
    np.testing.assert_array_equal(got["y"], x.astype(np.float32))
    np.testing.assert_array_equal(got["t"].view(np.uint8), x.T.view(np.uint8))
