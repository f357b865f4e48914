"""Files, numbers and streams that are not what they should be: one clear line, and nothing lost."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from byoc.cli import main
from byoc.cli.compile import _print
from codegen_cc.target import HOST
from models.builder import GraphBuilder
from tests.cli.test_cli import ROOT, command, error_of
from tests.test_tiny import tiny_input, tiny_model


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    onnx.save(tiny_model(), folder / "tiny.onnx")
    byoc.compile(folder / "tiny.onnx", folder / "tiny.so")
    return folder / "tiny.so"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("folder.npz", "it is a folder"),
        ("absent.npz", "no such file"),
        ("/dev/zero", "no plain file"),
        ("array.npz", "not an .npz file; need plain arrays by name"),
        ("cut.npz", "not an .npz file"),
        ("text.npz", "'x' is no array"),
        ("objects.npz", "Object arrays cannot be loaded"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "verify"])
def test_files_of_arrays(
    verb: str,
    name: str,
    said: str,
    library: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.npz").mkdir()
    np.savez("in.npz", x=tiny_input())
    Path("cut.npz").write_bytes(Path("in.npz").read_bytes()[:200])
    np.savez("objects.npz", x=np.array([None]))
    with Path("array.npz").open("wb") as file:
        np.save(file, tiny_input())
    with zipfile.ZipFile("text.npz", "w") as archive:
        archive.writestr("x.npy", "hello")
    given = [library.with_suffix(".onnx"), library] if verb == "verify" else [library]
    error = error_of(capsys, verb, *given, "-i", name)
    assert error.startswith(f"error: cannot read inputs {name}: {said}")


def test_results_do_not_take_the_place_of_inputs(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "in.npz", x=tiny_input())
    given = ["-i", tmp_path / "in.npz", "-o", tmp_path / "in.npz"]
    assert "the command names it twice" in error_of(capsys, "run", library, *given)
    with np.load(tmp_path / "in.npz") as file:
        assert file.files == ["x"]


def test_a_model_that_is_not_there(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent, model = tmp_path / "absent.onnx", library.with_suffix(".onnx")
    for arguments in (("verify", absent, library), ("compare", model, "--reference", absent)):
        error = error_of(capsys, *arguments)
        assert error == f"error: {absent}: no such file; give the path of an ONNX model\n"


def test_a_library_of_another_model(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = GraphBuilder("other", seed=0)
    product = graph.op("MatMul", graph.input("x", (1, 4)), graph.normal((4, 2), 1.0))
    graph.output(product, "y", (1, 2))
    onnx.save(graph.build(), tmp_path / "other.onnx")
    error = error_of(capsys, "verify", tmp_path / "other.onnx", library)
    assert error.startswith("error: tiny.so was compiled from another model, tiny.onnx; no ref")


def test_inputs_that_do_not_fit_are_no_wrong_answers(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "in.npz", x=tiny_input().astype(np.float64))
    model = library.with_suffix(".onnx")
    error = error_of(capsys, "verify", model, library, "-i", tmp_path / "in.npz")
    assert error == "error: input 'x' has dtype float64; need float32 (nothing is cast)\n"


def test_a_pointer_in_place_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
    (tmp_path / "m.onnx").write_text(text)
    error = error_of(capsys, "compile", tmp_path / "m.onnx", "-o", tmp_path / "m.so")
    assert "'git lfs pull'" in error


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (b"\x7fELF", "it is a library, as byoc compile writes"),
        (b"PK\x03\x04", "torch.export.save"),
        (b"\x1f\x8b", "it is compressed by gzip; unpack it"),
        (b"\x89HDF", "it is an HDF5 file, as Keras writes"),
    ],
)
def test_a_file_of_a_known_kind_that_is_no_model(
    begin: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.onnx").write_bytes(begin + bytes(range(255)))
    error = error_of(capsys, "compile", tmp_path / "m.onnx", "-o", tmp_path / "m.so")
    assert "m.onnx: no ONNX model: it is " in error and said in error


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--min-coverage", "nan"], "'nan' is no number"),
        (["--input-shapes", "x:[1,3,12,10] x:[2,3,12,10]"], "'x' is given twice"),
    ],
)
def test_options(
    options: list[str], said: str, library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in error_of(capsys, "partition", library.with_suffix(".onnx"), *options)


@pytest.mark.parametrize("share", [float("nan"), 1.5, -0.1, "all", True])
def test_shares(share: object, library: Path) -> None:
    with pytest.raises(byoc.CompileError, match=r"min_coverage is .*; need a number from 0 to 1"):
        byoc.compile(library.with_suffix(".onnx"), min_coverage=share)


def test_inputs_larger_than_memory(
    library: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw(*_: object) -> np.ndarray:
        return np.empty(2**60, np.float32)

    monkeypatch.setattr("byoc.drawn_inputs.draw_input", draw)
    assert "error: not enough memory: Unable to allocate 4.00 EiB" in error_of(
        capsys, "run", library
    )


def test_an_interrupt_that_another_error_hides(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, library: Path
) -> None:
    def interrupted(*_: object) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("no block is being built")

    monkeypatch.setattr("byoc.deploy.loader.load", interrupted)
    assert main(["run", str(library)]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


@pytest.mark.slow
def test_standard_files_that_are_closed(library: Path, tmp_path: Path) -> None:
    python = f"exec '{sys.executable}' -m byoc"
    for closed, code in (("<&- >&- 2>&-", 0), (">&-", 0), ("2>&-", 0)):
        out = tmp_path / "out.npz"
        line = f"{python} run '{library}' -o '{out}' {closed}"
        done = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (code, "")
        with np.load(out) as file:
            assert file.files == ["y"]
        out.unlink()


def test_a_full_disk(library: Path, tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        arguments = [sys.executable, "-m", "byoc", "inspect", library]
        done = subprocess.run(arguments, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: standard output: No space left on device\n"


@pytest.mark.slow
def test_letters_that_a_terminal_lacks(tmp_path: Path) -> None:
    graph = GraphBuilder("letters", seed=0)
    graph.output(graph.op("Relu", graph.input("größe", (1, 4))), "ergebnis ✓", (1, 4))
    onnx.save(graph.build(), tmp_path / "m.onnx")
    byoc.compile(tmp_path / "m.onnx", tmp_path / "m.so")
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    done = command("verify", tmp_path / "m.onnx", tmp_path / "m.so", **ascii_only)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ergebnis \\u2713" in done.stdout


def test_no_room_for_what_is_written(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: object
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "replace", full)
    model = library.with_suffix(".onnx")
    for arguments, said in (
        (("run", library, "-o", tmp_path / "o.npz"), "o.npz: No space left on device"),
        (("partition", model, "--dump-ir", tmp_path), "00_imported.py: No space left on device"),
    ):
        assert said in error_of(capsys, *arguments)
    assert not list(tmp_path.iterdir())


def test_sizes_that_nothing_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, shape in enumerate([(2**40, 2**40), (2**63 - 1,)]):
        graph = GraphBuilder("large", seed=0)
        graph.output(graph.op("Relu", graph.input("x", shape)), "y", shape)
        path = tmp_path / f"m{number}.onnx"
        onnx.save(graph.build(checked=False), path)
        assert "more than 2**59 elements" in error_of(capsys, "partition", path)


def test_an_instruction_set_that_is_none(
    library: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYOC_COMPILE_ISA", "mmx")
    given = ["compile", library.with_suffix(".onnx"), "-o", library.with_name("other.so")]
    assert "BYOC_COMPILE_ISA=mmx: unknown instruction set" in error_of(capsys, *given)


def test_the_hint_for_another_machine_is_no_run_here(
    library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = byoc.compile(library.with_suffix(".onnx"))
    for machine, hint in (
        (HOST.machine, f"run it: byoc run {library} --print-time"),
        ("riscv64", f"run it on a machine with riscv64: byoc run {library} --rpc HOST:PORT"),
    ):
        target = replace(compiled.metadata.target, machine=machine)
        metadata = replace(compiled.metadata, target=target)
        _print(replace(compiled, metadata=metadata), library)
        assert capsys.readouterr().out.splitlines()[-1] == hint


def test_results_into_a_pipe_leave_it_one(library: Path, tmp_path: Path) -> None:
    """Devices as well: ``-o /dev/null`` took its place."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert main(["run", str(library), "-o", str(pipe)]) == 0
        assert pipe.is_fifo()
        (tmp_path / "copy.npz").write_bytes(os.read(reader, 1 << 16))
    finally:
        os.close(reader)
    with np.load(tmp_path / "copy.npz") as results:
        assert results.files == ["y"]


@pytest.mark.parametrize("option", ["--dump-code", "--dump-ir", "--tuning-db", "-o"])
def test_a_path_of_an_empty_variable_is_not_this_folder(
    option: str,
    library: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    model = library.with_suffix(".onnx")
    error = error_of(capsys, "compile", model, "-o", "m.so", option, "")
    assert "the path is empty" in error and option in error
    assert not list(tmp_path.iterdir())


def test_shapes_may_be_given_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = GraphBuilder("two", seed=0)
    x, y = graph.input("x", ("n", 8)), graph.input("y", ("m", 8))
    graph.output(graph.op("Concat", x, y, axis=0), "z", ("k", 8))
    onnx.save(graph.build(), tmp_path / "m.onnx")
    shapes = ["--input-shapes", "x:[2,8]", "--input-shapes", "y:[3,8]"]
    assert main(["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.so"), *shapes]) == 0
    assert "out z: float32[5, 8]" in capsys.readouterr().out
    error = error_of(capsys, "partition", tmp_path / "m.onnx", *shapes, "--input-shapes", "x:[4,8]")
    assert "'x' is given twice" in error


@pytest.mark.parametrize("size", [str(10**20), f"{10**20}*n", f"n+{10**20}"])
def test_given_sizes_that_nothing_counts(
    size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = GraphBuilder("open", seed=0)
    graph.output(graph.op("Relu", graph.input("x", ("n", 8))), "y", ("n", 8))
    onnx.save(graph.build(), tmp_path / "m.onnx")
    error = error_of(capsys, "partition", tmp_path / "m.onnx", "--input-shapes", f"x:[{size},8]")
    assert "has more than 2**59 elements; give smaller sizes" in error


def test_commands_that_are_shown_can_be_typed(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "it's mine"
    folder.mkdir()
    model, output = library.with_suffix(".onnx"), folder / "m.so"
    assert main(["compile", str(model), "-o", str(output)]) == 0
    shown = capsys.readouterr().out.splitlines()[-1].removeprefix("run it: ")
    assert shlex.split(shown) == ["byoc", "run", str(output), "--print-time"]
    assert main(["compile", str(model), "-o", str(folder / "c"), "--emit", "standalone"]) == 0
    shown = capsys.readouterr().out.splitlines()[-1].removeprefix("use it: ")
    assert shlex.split(shown)[-4] == str(folder / "c" / "lib" / "libtiny.a")
