"""A library of the user's own in a model: linking, choice per node, what goes wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import byoc
from byoc.errors import RunError
from codegen_cc.errors import CodegenError, LibraryError
from codegen_cc.libraries import Selection, registry
from codegen_cc.libraries.selection import cheapest
from codegen_cc.node import Node, Operand
from tests.libraries.sample import WAYS, SampleLibrary, two_products
from tests.reference import assert_agrees, onnxruntime_outputs

pytestmark = pytest.mark.usefixtures("forget_libraries")


def random_input(rows: int = 5) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(rows).standard_normal((rows, 32), dtype=np.float32)}


def libraries_of(compiled: byoc.Compiled) -> dict[str, str]:
    """Library by node name."""
    return {node["name"]: node["library"] for node in compiled.report.to_json()["nodes"]}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_linking(way: str, tmp_path: Path) -> None:
    sample = SampleLibrary(tmp_path, way)
    model = two_products()
    compiled = byoc.compile(model, tmp_path / "m.so", libraries=[sample, "builtin"])
    assert len(compiled.report.regions) == 1
    assert libraries_of(compiled) == {
        "head/first": "sample",
        "relu": "builtin",
        "tail/second": "sample",
    }
    linked = {use.name: use.linked for use in compiled.report.libraries}
    assert linked["sample"].startswith("opens libsample.so" if way == "shared" else "static")
    loaded = byoc.load(tmp_path / "m.so")
    assert [(lib.name, lib.version) for lib in loaded.libraries] == [
        ("sample", "2.1"),
        ("builtin", loaded.libraries[1].version),
    ]
    inputs = random_input()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of threads
        assert_agrees(loaded.run(inputs), onnxruntime_outputs(model, inputs))


def test_only_packed_functions_are_exported(tmp_path: Path) -> None:
    byoc.compile(
        two_products(),
        tmp_path / "m.so",
        libraries=[SampleLibrary(tmp_path, "archive"), "builtin"],
    )
    command = ["nm", "-D", "--defined-only", "-P", str(tmp_path / "m.so")]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names = [line.split()[0] for line in text.splitlines()]
    assert "__tvm_ffi_ext_main_0" in names
    assert [name for name in names if not name.startswith(("__tvm_ffi_", "_"))] == []


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (["matmul=sample"], ("sample", "builtin", "sample")),
        (["tail/*=sample"], ("builtin", "builtin", "sample")),
        (["builtin,head/first=sample"], ("sample", "builtin", "builtin")),
        (["sample,builtin", "tail/second=builtin"], ("sample", "builtin", "builtin")),
    ],
)
def test_forced(choice: list[str], expected: tuple[str, ...], tmp_path: Path) -> None:
    registry.library(SampleLibrary(tmp_path, "source"))
    compiled = byoc.compile(two_products(), libraries=choice)
    found = libraries_of(compiled)
    # Where builtin takes the first product, the activation is part of it.
    names = [name for key in ("head/first", "tail/second") for name in found if key in name]
    assert [found[name] for name in names] == [expected[0], expected[2]]


def test_forced_library_that_refuses_leaves_the_node_to_tvm(tmp_path: Path) -> None:
    registry.library(SampleLibrary(tmp_path, "source"))
    compiled = byoc.compile(two_products(), libraries="builtin,relu=sample")
    (left,) = compiled.report.left
    assert (left.name, left.reason) == ("relu", "sample: ext.relu; need a plain matmul")


def test_alone_means_alone(tmp_path: Path) -> None:
    compiled = byoc.compile(two_products(), libraries=SampleLibrary(tmp_path, "source"))
    assert [left.op for left in compiled.report.left] == ["relax.nn.relu"]


def test_choice_by_cost(tmp_path: Path) -> None:
    sample = SampleLibrary(tmp_path, "source")
    selection = Selection.of(["builtin", sample], choose=cheapest)
    operands = (Operand("lhs", (4, 4), "float32"), Operand("rhs", (4, 4), "float32", True))
    node = Node("matmul", operands, (4, 4), "float32")
    assert selection.pick(node) is sample  # the only one that states a cost


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("nothing", "no kernel library is called 'nothing'; known are builtin"),
        ("conf2d=builtin", "no operator and no node is called 'conf2d'; did you mean 'conv2d'"),
        ("builtin,", "cannot read library choice ''"),
        ("=builtin", "cannot read library choice '=builtin'"),
        ("no/such/file.py", "file.py does not exist"),
    ],
)
def test_unreadable_choice(choice: str, message: str) -> None:
    with pytest.raises(LibraryError, match=message.replace("(", r"\(")):
        byoc.compile(two_products(), libraries=choice)


@pytest.mark.parametrize("way", WAYS)
def test_missing_function_is_found_at_compile_time(way: str, tmp_path: Path) -> None:
    sample = SampleLibrary(tmp_path, way, function="sample_gemm")
    (tmp_path / "sample.h").write_text(
        (tmp_path / "sample.h").read_text().replace("sample_matmul", "sample_gemm")
    )
    if way == "source":
        (tmp_path / "sample.h").write_text(
            (tmp_path / "sample.h")
            .read_text()
            .replace("int sample_gemm", "int sample_matmul();\nint sample_gemm")
            .replace("int sample_matmul();\n", "")
        )
        (tmp_path / "sample.c").write_text('#include "sample.h"\n')
    with pytest.raises(LibraryError, match=r"sample.*: function sample_") as error:
        byoc.compile(two_products(), tmp_path / "m.so", libraries=[sample, "builtin"])
    assert "is in none of its files" in str(error.value)
    assert not (tmp_path / "m.so").exists()


@pytest.mark.parametrize("way", ["archive", "shared", "source"])
def test_missing_file_is_found_at_compile_time(way: str, tmp_path: Path) -> None:
    sample = SampleLibrary(tmp_path, way)
    for name in ("libsample.so", "sample.o", "sample.c"):
        (tmp_path / name).unlink(missing_ok=True)
    with pytest.raises(LibraryError, match=r"library sample: .* does not exist"):
        byoc.compile(two_products(), libraries=[sample, "builtin"])


def test_status_of_a_kernel_becomes_an_error(tmp_path: Path) -> None:
    sample = SampleLibrary(tmp_path, "source")
    byoc.compile(two_products(13), tmp_path / "m.so", libraries=[sample, "builtin"])
    with pytest.raises(RunError, match=r"library sample failed on ext.matmul: status 7 \(thirteen"):
        byoc.load(tmp_path / "m.so").run(random_input(13))


def test_other_number_of_threads_is_reported(tmp_path: Path) -> None:
    sample = SampleLibrary(tmp_path, "source", extra_threads=3)
    byoc.compile(two_products(), tmp_path / "m.so", libraries=[sample, "builtin"])
    loaded = byoc.load(tmp_path / "m.so")
    with pytest.warns(RuntimeWarning, match="library sample uses . threads where . are asked for"):
        loaded.run(random_input())


def run_elsewhere(model: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "byoc", "run", str(model)]
    path = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(byoc.__file__).parents[1])}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=path | environment
    )


@pytest.mark.slow
def test_shared_library_is_found_where_the_model_goes(tmp_path: Path) -> None:
    build, deploy, other = (tmp_path / name for name in ("build", "deploy", "other"))
    for folder in (build, deploy, other):
        folder.mkdir()
    sample = SampleLibrary(build, "shared")
    byoc.compile(two_products(), deploy / "m.so", libraries=[sample, "builtin"])
    assert run_elsewhere(deploy / "m.so").returncode == 0  # where it was built
    shutil.move(build / "libsample.so", deploy / "libsample.so")
    assert run_elsewhere(deploy / "m.so").returncode == 0  # beside the model
    shutil.move(deploy / "libsample.so", other / "libsample.so")
    assert run_elsewhere(deploy / "m.so", BYOC_LIBRARY_PATH=f"/none:{other}").returncode == 0
    missing = run_elsewhere(deploy / "m.so")
    assert missing.returncode == 2
    assert "library sample: cannot open libsample.so; put it beside the model" in missing.stderr
    subprocess.run(["cc", "-shared", "-xc", "/dev/null", "-o", str(deploy / "libsample.so")])
    old = run_elsewhere(deploy / "m.so")
    assert old.returncode == 2
    assert "libsample.so has no function sample_" in old.stderr


_MOVES = """
import os, shutil, sys
import numpy as np
import byoc
x = np.load("x.npy")
if sys.argv[1] == "replaced":
    first = byoc.load("m.so")  # not run
    shutil.copy("m.so", "again.so"); os.replace("again.so", "m.so")
    model = byoc.load("m.so")
    call = model
elif sys.argv[1] == "relative":
    model = byoc.load("m.so")
    os.chdir("/")
    call = model
else:
    import tvm
    module = tvm.runtime.load_module("./m.so")
    os.chdir("/")
    machine = tvm.runtime.vm.VirtualMachine(module, tvm.cpu())
    call = lambda x: machine["main"](tvm.runtime.tensor(x)).numpy()
print(float(np.abs(call(x)).sum()))
"""


@pytest.mark.parametrize("way", ["replaced", "relative", "tvm"])
def test_shared_library_is_looked_for_where_the_model_was_loaded(way: str, tmp_path: Path) -> None:
    """Not where a link to it was, or a relative name leads now: both may be anyone's."""
    build, deploy = tmp_path / "build", tmp_path / "deploy"
    build.mkdir()
    deploy.mkdir()
    byoc.compile(
        two_products(), deploy / "m.so", libraries=[SampleLibrary(build, "shared"), "builtin"]
    )
    shutil.move(build / "libsample.so", deploy / "libsample.so")
    inputs = random_input()
    np.save(deploy / "x.npy", inputs["x"])
    done = subprocess.run(
        [sys.executable, "-c", _MOVES, way], cwd=deploy, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (want,) = onnxruntime_outputs(two_products(), inputs).values()
    assert float(done.stdout) == pytest.approx(np.abs(want).sum(), rel=1e-4)


def test_codegen_needs_the_library_that_was_chosen(tmp_path: Path) -> None:
    from tvm import relax

    from byoc.frontends.onnx import import_onnx, prepare

    sample = SampleLibrary(tmp_path, "source")
    module = import_onnx(prepare(two_products()))
    module = byoc.partition_for_ext(module, libraries=[sample, "builtin"])
    del registry._loaded["sample"]
    with pytest.raises(CodegenError, match="no kernel library is called 'sample'"):
        relax.transform.RunCodegen()(module)
