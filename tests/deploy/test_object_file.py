"""The object file of packed weights, as binutils and the linker see it."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

import byoc
from byoc.frontends.onnx import import_onnx, prepare
from byoc.link_shared import is_all_of_c
from codegen_cc.errors import ToolchainError
from codegen_cc.link import object_file, weights
from codegen_cc.link.toolchain import build_object, compiler
from codegen_cc.link.weights import WeightBlob
from codegen_cc.module import without_inert
from tests.deploy.test_region_module import model, numbers
from tests.reference import assert_agrees, onnxruntime_outputs

X86 = platform.machine() == "x86_64"


def output_of(*command: object) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("far", [False, True])
def test_what_is_in_it(far: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``far``: as if the weights were too many for addresses relative to the code."""
    if far:
        monkeypatch.setattr(object_file, "FAR", 0)
    blob = WeightBlob("w", tmp_path / "weights.o")
    arrays = [np.arange(5, dtype=np.float32), np.ones((3, 7), np.int64), np.zeros(0, np.float32)]
    stored = [blob.add(array) for array in arrays]
    assert blob.add(arrays[0].copy()) is stored[0]
    text = "".join(f"extern const char {w.symbol}[];\n" for w in stored)
    text += f"const char* first(void) {{ return {stored[0].symbol}; }}\n"
    text += f"const char* second(void) {{ return {stored[1].symbol}; }}\n"
    (tmp_path / "c.c").write_text(text)
    code = tmp_path / "code.o"
    subprocess.run([*compiler(), "-fPIC", "-c", tmp_path / "c.c", "-o", code], check=True)
    constants = blob.finish(code)
    assert constants == tmp_path / "weights.o"
    library = tmp_path / "all.so"
    subprocess.run([*compiler(), "-shared", "-o", library, code, constants], check=True)
    loaded = ctypes.CDLL(str(library))
    for name, array in (("first", arrays[0]), ("second", arrays[1])):
        function = getattr(loaded, name)
        function.restype = ctypes.c_void_p
        address = function()
        assert address % 64 == 0
        assert ctypes.string_at(address, array.nbytes) == array.tobytes()
    # Hidden, so that two libraries' weights never meet; and no executable stack.
    assert "w_w0" not in output_of("nm", "-D", library)
    (stack,) = [x for x in output_of("readelf", "-lW", library).splitlines() if "GNU_STACK" in x]
    assert stack.split()[6] == "RW"
    assert (".lrodata" in output_of("readelf", "-SW", library)) == (far and X86)


def test_many_weights_are_laid_out_for_large_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = byoc.compile(model(), tmp_path / "few.so")
    monkeypatch.setattr(weights, "HUGE", 0)
    many = byoc.compile(model(), tmp_path / "many.so")
    for compiled, page in ((few, 0x1000), (many, 0x200000)):
        assert compiled.path is not None and len(compiled.report.regions) == 1
        lines = output_of("readelf", "-lW", compiled.path).splitlines()
        loads = [line.split() for line in lines if line.split()[:1] == ["LOAD"]]
        assert loads
        for _, offset, address, *_, align in loads:
            assert int(align, 16) % page == 0
            assert (int(address, 16) - int(offset, 16)) % page == 0
        assert os.access(compiled.path, os.X_OK)
        found = byoc.load(compiled.path)(numbers())
        assert_agrees({"y": found}, onnxruntime_outputs(model(), {"x": numbers()}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["few.so", "many.so"]


def test_a_library_is_written_anew_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = np.random.default_rng(0).bytes(1000)
    library = tmp_path / "model.so"
    monkeypatch.setattr(weights, "_PIECE", 64)
    for huge, is_anew in ((1001, False), (1000, True)):
        library.write_bytes(content)
        library.chmod(0o751)
        before = library.stat()
        monkeypatch.setattr(weights, "HUGE", huge)
        weights.write_in_large_pieces(library)
        assert library.read_bytes() == content
        assert library.stat().st_mode == before.st_mode
        assert (library.stat().st_ino != before.st_ino) == is_anew
    assert list(tmp_path.iterdir()) == [library]


def test_nothing_is_written_where_there_are_no_weights(tmp_path: Path) -> None:
    blob = WeightBlob("w", tmp_path / "weights.o")
    assert blob.finish(tmp_path / "missing.o") is None
    assert not list(tmp_path.iterdir())
    plan_only = WeightBlob("w")
    plan_only.add(np.ones(3, np.float32))
    assert plan_only.finish(tmp_path / "missing.o") is None


def test_another_format_is_refused(tmp_path: Path) -> None:
    blob = WeightBlob("w", tmp_path / "weights.o")
    blob.add(np.ones(3, np.float32))
    (tmp_path / "code.o").write_bytes(b"\xcf\xfa\xed\xfe" + bytes(100))
    with pytest.raises(ToolchainError, match=r"code\.o is no 64-bit ELF object; .* for Linux"):
        blob.finish(tmp_path / "code.o")


def test_weights_can_be_left_to_whoever_links(tmp_path: Path) -> None:
    module = byoc.partition_for_ext(import_onnx(prepare(model())))
    constants = tmp_path / "w.o"
    module = relax.transform.RunCodegen({"ext": {"weights": str(constants)}})(module)
    (symbol,) = {
        line.split()[-1] for line in output_of("nm", constants).splitlines() if "_w0" in line
    }
    executable = tvm.compile(module, "llvm")
    executable.export_library(str(tmp_path / "m.so"), addons=[str(constants)])
    assert symbol in output_of("nm", tmp_path / "m.so")
    loaded = tvm.runtime.load_module(str(tmp_path / "m.so"))
    result = relax.VirtualMachine(loaded, tvm.cpu())["main"](tvm.runtime.tensor(numbers()))
    assert_agrees({"y": result.numpy()}, onnxruntime_outputs(model(), {"x": numbers()}))


def test_an_executable_brings_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after it was written to a file, and again; nothing stays behind or warns."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    compiled = byoc.compile(model(), tmp_path / "m.so")
    assert len(compiled.report.regions) == 1
    executable = compiled.executable
    expected = onnxruntime_outputs(model(), {"x": numbers()})
    machine = relax.VirtualMachine(executable, tvm.cpu())
    assert_agrees({"y": machine["main"](tvm.runtime.tensor(numbers())).numpy()}, expected)
    executable.export_library(str(tmp_path / "again.so"))
    assert_agrees(
        {"y": relax.VirtualMachine(
            tvm.runtime.load_module(str(tmp_path / "again.so")), tvm.cpu()
        )["main"](tvm.runtime.tensor(numbers())).numpy()},
        expected,
    )  # fmt: skip
    assert [path.name for path in place.glob("*/*")] == ["weights.o"]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del compiled, executable, machine
        gc.collect()
    assert not list(place.iterdir()) and not told


def test_c_that_defines_nothing_is_not_compiled(tmp_path: Path) -> None:
    """Sources that are kept for reading: no linker gets them, an archive of files has them."""
    texts = {
        "lib0.o": "",
        "empty.c": ";",
        "kept.c": "int x;\n",
        "both.c": "#if 0\n#endif\nint y;\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / name) for name in texts]
    assert without_inert(files) == [files[0], *files[2:]]

    executable = byoc.compile(model()).executable
    executable.export_library(str(tmp_path / "m.tar"))
    with tarfile.open(tmp_path / "m.tar") as archive:
        archive.extractall(tmp_path / "files", filter="data")
    found = sorted((tmp_path / "files").rglob("*"))
    sources = [str(file) for file in found if file.suffix == ".c"]
    assert any("ext_main_0" in Path(file).read_text() for file in sources)
    assert [Path(file).name for file in without_inert(sources)] == ["devc.c"]  # TVM's own
    assert "weights.o" in [file.name for file in found]


def test_code_is_built_without_weights(tmp_path: Path) -> None:
    built = build_object("int x(void) { return 1; }\n", tmp_path)
    assert "weights" not in output_of("readelf", "-SW", built)


def test_what_needs_the_library_of_cxx(tmp_path: Path) -> None:
    """A name of that library, or a file that is no object, keeps the compiler for C++."""
    texts = {
        "plain": "int f(void) { return 1; }",
        "math": "double sin(double); double g(double x) { return sin(x); }",
        "throws": "void __cxa_throw(void); void h(void) { __cxa_throw(); }",
        "new": "void* _Znwm(unsigned long); void* i(void) { return _Znwm(1); }",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.c").write_text(text)
        command = [*compiler(), "-c", f"{name}.c", "-o", f"{name}.o"]
        subprocess.run(command, cwd=tmp_path, check=True)
    (tmp_path / "other.o").write_text("no object")
    found = {name for name in [*texts, "other"] if is_all_of_c([str(tmp_path / f"{name}.o")])}
    assert found == {"plain", "math"}
    assert not is_all_of_c([str(tmp_path / "plain.o"), str(tmp_path / "plain.c")])
    assert not is_all_of_c([str(tmp_path / "plain.o"), str(tmp_path / "new.o")])


@pytest.mark.parametrize("named", [None, "g++"])
def test_libraries_of_c_do_not_ask_for_that_of_cxx(
    named: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the environment names what links."""
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    if named:
        if shutil.which(named) is None:
            pytest.skip(f"no {named}")
        monkeypatch.setenv("CXX", named)
    compiled = byoc.compile(model(), tmp_path / "m.so")
    assert len(compiled.report.regions) == 1
    needed = output_of("readelf", "-dW", tmp_path / "m.so")
    assert "libc.so" in needed and (named or "libstdc++" not in needed)
    given = {"x": numbers()}
    found = byoc.load(tmp_path / "m.so").run(given)
    assert_agrees(found, onnxruntime_outputs(model(), given))
