"""The whole way on a model of three operators, in seconds; runs before everything else."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax

import byoc
from byoc.frontends.onnx import import_onnx, prepare
from models.builder import GraphBuilder
from tests.reference import assert_agrees, onnxruntime_outputs


def tiny_model() -> onnx.ModelProto:
    """conv 3x3 + ReLU, then a matmul over the last axis."""
    graph = GraphBuilder("tiny", seed=1)
    x = graph.input("x", (1, 3, 12, 10))
    x = graph.op("Relu", graph.conv(x, (3, 20), 3))
    graph.output(graph.linear(x, (10, 5)), "y", (1, 20, 12, 5))
    return graph.build()


def tiny_input() -> np.ndarray:
    return np.random.default_rng(2).standard_normal((1, 3, 12, 10), dtype=np.float32)


def assert_all_offloaded(module: tvm.IRModule) -> None:
    """Every contraction is inside a region; nothing with a kernel stays in main."""
    regions = [
        function
        for function in module.functions.values()
        if isinstance(function, relax.Function) and (function.attrs or {}).get("Codegen") == "ext"
    ]
    assert regions, "no region was made"
    text = module["main"].script()
    assert "conv2d" not in text and "R.matmul" not in text, text


def test_one_call(tmp_path: Path) -> None:
    compiled = byoc.compile(tiny_model(), tmp_path / "tiny.so")
    assert compiled.report.offloaded_macs == compiled.report.macs > 0
    model = byoc.load(tmp_path / "tiny.so")
    assert str(model.inputs[0]) == "x: float32[1, 3, 12, 10]"
    assert str(model.outputs[0]) == "y: float32[1, 20, 12, 5]"
    expected = onnxruntime_outputs(tiny_model(), {"x": tiny_input()})
    assert_agrees(model.run({"x": tiny_input()}), expected)
    np.testing.assert_array_equal(model(tiny_input()), model(x=tiny_input()))


def test_tvms_own_calls(tmp_path: Path) -> None:
    """Who knows TVM's other partition functions needs nothing new, and no option at export."""
    module = byoc.partition_for_ext(import_onnx(prepare(tiny_model())))
    assert_all_offloaded(module)
    executable = tvm.compile(relax.transform.RunCodegen()(module), "llvm")
    expected = onnxruntime_outputs(tiny_model(), {"x": tiny_input()})
    executable.export_library(str(tmp_path / "plain.so"))
    for runnable in (executable, tvm.runtime.load_module(str(tmp_path / "plain.so"))):
        machine = relax.VirtualMachine(runnable, tvm.cpu())
        assert_agrees({"y": machine["main"](tvm.runtime.tensor(tiny_input())).numpy()}, expected)


def test_import_tvm_finds_the_backend() -> None:
    try:
        version("tvm-byoc-ext")
    except PackageNotFoundError:
        pytest.skip("the package is not installed, so TVM cannot see its entry point")
    check = "import tvm, sys; tvm.get_global_func('relax.ext.ext'); assert 'byoc' in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True, cwd="/")


def test_import_is_light() -> None:
    check = (
        "import byoc, sys; assert not {'tvm', 'tvm_ffi', 'numpy', 'onnx'} & set(sys.modules)\n"
        "assert 'compile' in dir(byoc)"
    )
    root = Path(byoc.__file__).parents[1]
    subprocess.run([sys.executable, "-c", check], check=True, cwd=root)
