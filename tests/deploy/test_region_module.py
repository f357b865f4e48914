"""The module that the code generator hands to TVM: what it exports, shows and refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
import tvm_ffi.libinfo
from tvm import relax

import byoc
import codegen_cc.module
from byoc.frontends.onnx import import_onnx, prepare
from codegen_cc import CodegenError, ToolchainError, generate
from codegen_cc.link.toolchain import C_FLAGS, compiler, runtime_file
from codegen_cc.lowering import plan_region
from models.builder import GraphBuilder
from tests.reference import assert_agrees, onnxruntime_outputs

ROOT = Path(byoc.__file__).parents[1]
SHAPE = (1, 4, 6, 5)


def model(seed: int = 0):
    graph = GraphBuilder("block", seed=seed)
    x = graph.input("x", SHAPE)
    graph.output(graph.op("Relu", graph.conv(x, (4, 8), 3)), "y", (1, 8, 6, 5))
    return graph.build()


def region_module(seed: int = 0) -> tvm.IRModule:
    module = byoc.partition_for_ext(import_onnx(prepare(model(seed))))
    assert [g.name_hint for g in module.get_global_vars() if g.name_hint.startswith("ext_")] == [
        "ext_main_0"
    ]
    return relax.transform.RunCodegen()(module)


def numbers(shape=SHAPE, dtype="float32") -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(dtype)


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("deploy") / "block.so"
    tvm.compile(region_module(), "llvm").export_library(str(path))
    return path


@pytest.fixture(scope="module")
def region(library):
    return function_of(library)


def function_of(library: Path):
    """The region's own packed function, without the virtual machine's checks before it."""
    modules = [tvm.runtime.load_module(str(library))]
    while modules:
        found = modules.pop()
        if found.implements_function("ext_main_0"):
            return found["ext_main_0"]
        modules.extend(found.imports)
    raise AssertionError("ext_main_0 is not in the library")


def test_the_region_is_a_destination_passing_function(region):
    out = tvm.runtime.tensor(np.full((1, 8, 6, 5), np.nan, "float32"))
    region(tvm.runtime.tensor(numbers()), out)
    assert_agrees({"y": out.numpy()}, onnxruntime_outputs(model(), {"x": numbers()}))


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (numbers((1, 4, 6, 4)), ValueError, ["input 0", "[1, 4, 6, 4]", "expected [1, 4, 6, 5]"]),
        (numbers((4, 6, 5)), ValueError, ["[4, 6, 5]", "expected [1, 4, 6, 5]"]),
        (numbers((0, 4, 6, 5)), ValueError, ["[0, 4, 6, 5]", "expected [1, 4, 6, 5]"]),
        (numbers(dtype="float64"), TypeError, ["input 0", "64 bits", "expected float32"]),
        (numbers(dtype="int32"), TypeError, ["input 0", "expected float32"]),
    ],
)
def test_a_wrong_tensor_is_one_clear_error(region, x, error, words):
    out = tvm.runtime.tensor(np.empty((1, 8, 6, 5), "float32"))
    with pytest.raises(error) as caught:
        region(tvm.runtime.tensor(x), out)
    assert all(word in str(caught.value) for word in ["ext_main_0", *words]), caught.value


def test_wrong_arguments_are_one_clear_error(region):
    x = tvm.runtime.tensor(numbers())
    with pytest.raises(TypeError, match="got 1 arguments; expected 2"):
        region(x)
    with pytest.raises(TypeError, match="output 0 is not a tensor"):
        region(x, 3)


def test_a_strided_tensor_is_refused(region):
    memory = np.zeros((1, 4, 6, 32), "float32")
    out = tvm.runtime.tensor(np.empty((1, 8, 6, 5), "float32"))
    strided = tvm_ffi.from_dlpack(memory[..., :5], require_contiguous=False)
    with pytest.raises(ValueError, match="not contiguous"):
        region(strided, out)


def test_source_can_be_read_from_the_module():
    module = region_module()
    texts = [m.inspect_source() for m in module.attrs["external_mods"] if m.kind == "c"]
    assert any("ext_conv2d(" in text and "ext_main_0_body" in text for text in texts)


@pytest.mark.parametrize("batch", [1, "n"])
def test_generated_c_compiles_without_a_warning(tmp_path, batch):
    shapes = {"x": [batch, *SHAPE[1:]]}
    source = model()
    if batch == "n":
        source.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
        source.graph.output[0].type.tensor_type.ClearField("shape")
    compiled = byoc.compile(source, tmp_path / "m.so", shapes, dump_code=tmp_path)
    assert len(compiled.report.regions) == 1
    includes = [f"-I{runtime_file('include')}", f"-I{tvm_ffi.libinfo.find_include_path()}"]
    includes.append(f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}")
    command = [*compiler(), *C_FLAGS, "-Werror", "-fsyntax-only", *includes]
    subprocess.run([*command, tmp_path / "ext_main_0.c"], check=True)


def test_only_the_entry_point_is_exported(library):
    done = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True)
    names = {line.split()[-1] for line in done.stdout.splitlines()}
    assert "__tvm_ffi_ext_main_0" in names
    assert not [name for name in names if name.startswith("ext_")]


def test_two_modules_of_equal_symbols_live_in_one_process(tmp_path):
    for seed in (0, 1):
        tvm.compile(region_module(seed), "llvm").export_library(str(tmp_path / f"{seed}.so"))
    for seed in (0, 1):
        loaded = tvm.runtime.load_module(str(tmp_path / f"{seed}.so"))
        result = relax.VirtualMachine(loaded, tvm.cpu())["main"](tvm.runtime.tensor(numbers()))
        expected = onnxruntime_outputs(model(seed), {"x": numbers()})
        assert_agrees({"y": result.numpy()}, expected)


def test_a_replaced_library_is_loaded_anew(tmp_path):
    for seed in (0, 1):
        compiled = byoc.compile(model(seed), tmp_path / "m.so")
        assert len(compiled.report.regions) == 1
        expected = onnxruntime_outputs(model(seed), {"x": numbers()})
        assert_agrees(byoc.load(tmp_path / "m.so").run({"x": numbers()}), expected)


def test_unknown_option_is_refused():
    module = byoc.partition_for_ext(import_onnx(prepare(model())))
    with pytest.raises(CodegenError, match=r"unknown option speed.*known: dump_code, .*timers"):
        relax.transform.RunCodegen({"ext": {"speed": "high"}})(module)


def test_compile_plans_a_region_once_and_reports_its_cost(tmp_path, monkeypatch):
    planned = []

    def counted(region, weights):
        planned.append(plan_region(region, weights))
        return planned[-1]

    monkeypatch.setattr(codegen_cc.module, "plan_region", counted)
    compiled = byoc.compile(model(), tmp_path / "m.so")
    (region,), (plan,) = compiled.report.regions, planned
    assert region.name == plan.region.symbol
    assert region.plan is not None and region.plan.calls == len(plan.calls) > 0
    expected = onnxruntime_outputs(model(), {"x": numbers()})
    assert_agrees(byoc.load(tmp_path / "m.so").run({"x": numbers()}), expected)


def test_modules_that_lack_a_region_are_refused():
    module = byoc.partition_for_ext(import_onnx(prepare(model())))
    made, other = generate([module["ext_main_0"]]), generate([])
    assert isinstance(
        relax.transform.RunCodegen({"ext": {"modules": made.modules}})(module), tvm.IRModule
    )
    with pytest.raises(CodegenError, match="region ext_main_0 is in none of the modules"):
        relax.transform.RunCodegen({"ext": {"modules": other.modules}})(module)
    with pytest.raises(CodegenError, match="option modules of backend ext stands alone"):
        relax.transform.RunCodegen({"ext": {"modules": made.modules, "timers": True}})(module)


def test_a_missing_compiler_names_the_package(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(ToolchainError, match=r"no-such-compiler.*apt install gcc"):
        region_module()


def test_an_unknown_isa_is_refused_at_the_first_call(library):
    script = (
        "import sys, numpy as np, tvm\n"
        "from tvm.runtime.vm import VirtualMachine\n"
        "vm = VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())\n"
        "vm['main'](tvm.runtime.tensor(np.zeros((1, 4, 6, 5), 'float32')))\n"
    )
    environment = {**os.environ, "BYOC_ISA": "avx1024", "TVM_USE_RUNTIME_LIB": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, library],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "BYOC_ISA" in last and "avx1024" in last and "avx2" in last


def test_a_forked_child_runs_what_its_parent_loaded(library):
    """The child lacks the pool's threads; waiting for them it would never end."""
    script = (
        "import os, sys, numpy as np, byoc\n"
        "model = byoc.load(sys.argv[1], threads=2)\n"
        "x = np.ones((1, 16, 64, 64), 'float32')\n"
        "expected = model(x)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if np.array_equal(model(x), expected) else 3)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    graph = GraphBuilder("wide", seed=4)
    x = graph.input("x", (1, 16, 64, 64))
    graph.output(graph.conv(x, (16, 64), 3), "y", (1, 64, 64, 64))
    wide = library.parent / "wide.so"
    assert len(byoc.compile(graph.build(), wide).report.regions) == 1
    subprocess.run([sys.executable, "-c", script, wide], cwd=ROOT, check=True, timeout=60)


def test_sizes_that_no_axis_tells_come_before_the_tensors(tmp_path):
    graph = GraphBuilder("block", seed=0)
    x = graph.input("x", (1, 4, "height", 5))
    graph.output(graph.op("Relu", graph.conv(x, (4, 8), 3)), "y", (1, 8, "height", 5))
    byoc.compile(graph.build(), tmp_path / "m.so", {"x": [1, 4, "2*h", 5]})
    region = function_of(tmp_path / "m.so")
    x, out = (tvm.runtime.tensor(np.zeros((1, c, 6, 5), "float32")) for c in (4, 8))
    region(tvm_ffi.Shape([3]), x, out)
    with pytest.raises(TypeError, match="argument 0 is no shape of 1 sizes; pass one"):
        region(x, out)
    with pytest.raises(TypeError, match="argument 0 is no shape of 1 sizes; pass one"):
        region(tvm_ffi.Shape([3, 3]), x, out)
    with pytest.raises(ValueError, match=r"has shape \[1, 4, 6, 5\]; expected \[1, 4, 4, 5\]"):
        region(tvm_ffi.Shape([2]), x, out)
    with pytest.raises(TypeError, match="got 1 arguments; expected 2"):
        region(tvm_ffi.Shape([3]), x)
