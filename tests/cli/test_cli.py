"""``byoc`` as a command: answers, one-line errors and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from byoc.cli import main
from byoc.cli.options import InputShapes
from models.builder import GraphBuilder
from tests.conftest import CompiledCase
from tests.test_tiny import tiny_input, tiny_model

ROOT = Path(byoc.__file__).parents[1]


@pytest.fixture(scope="module")
def tiny(compiled_case: Callable[..., CompiledCase]) -> CompiledCase:
    return compiled_case("tiny", tiny_model())


def command(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``byoc`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "byoc", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def error_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run ``byoc`` in this process, which must fail with one line; returns it."""
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1, captured.err
    return captured.err


@pytest.mark.slow
def test_without_tvms_compiler_the_variable_is_named() -> None:
    done = command("partition", "m.onnx", TVM_USE_RUNTIME_LIB="1")
    assert done.returncode == 2 and done.stderr == (
        "error: TVM_USE_RUNTIME_LIB=1 leaves TVM's compiler out, which this needs; unset it\n"
    )


@pytest.mark.slow
def test_version_and_help() -> None:
    assert command("--version").stdout == f"byoc, version {byoc.__version__}\n"
    for verb in ("compile", "run", "partition"):
        done = command(verb, "--help")
        assert done.returncode == 0
        assert done.stdout.startswith(f"Usage: byoc {verb}")
    assert command().returncode == 2


@pytest.mark.slow
def test_compile_then_run(tmp_path: Path) -> None:
    onnx.save(tiny_model(), tmp_path / "tiny.onnx")
    library, code = tmp_path / "tiny.so", tmp_path / "code"
    done = command("compile", tmp_path / "tiny.onnx", "-o", library, "--dump-code", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{library}: ")
    assert re.search(r"calls, \d+ copies \(0 inside\), arena \d+\.\d\d MiB", done.stdout)
    assert list(code.rglob("*.c"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code", "tiny.onnx", "tiny.so"]
    np.savez(tmp_path / "in.npz", x=tiny_input())
    done = command("run", library, "-i", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "y: float32[1, 20, 12, 5]\n"
    with np.load(tmp_path / "out.npz") as file:
        np.testing.assert_array_equal(file["y"], byoc.load(library)(tiny_input()))


@pytest.mark.slow
def test_run_loads_no_compiler(tiny: CompiledCase) -> None:
    check = (
        "import sys\nfrom byoc.cli import main\n"
        f"assert main(['run', {str(tiny.library)!r}]) == 0\n"
        "assert 'tvm_compiler' not in open('/proc/self/maps').read()"
    )
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_run_prints_times_and_the_greatest_values(
    tiny: CompiledCase, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--repeat", "5", "--print-time", "--print-top", "3", "--json"]
    assert main(["run", str(tiny.library), *options]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["outputs"] == {"y": {"shape": [1, 20, 12, 5], "dtype": "float32"}}
    assert answer["milliseconds"]["runs"] == 5
    assert 0 < answer["milliseconds"]["min"] <= answer["milliseconds"]["max"]
    values = [value for _, value in answer["top"]["y"]]
    assert len(values) == 3
    assert values == sorted(values, reverse=True)
    assert main(["run", str(tiny.library), *options[:-1]]) == 0
    assert "p50 ms" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["zeros", "ones", "random"])
def test_fill_modes(tiny: CompiledCase, tmp_path: Path, mode: str) -> None:
    out = tmp_path / "out.npz"
    assert main(["run", str(tiny.library), "--fill-mode", mode, "-o", str(out)]) == 0
    x = {"zeros": np.zeros, "ones": np.ones}.get(mode, np.zeros)((1, 3, 12, 10), np.float32)
    if mode == "random":
        x = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    with np.load(out) as file:
        np.testing.assert_array_equal(file["y"], byoc.load(tiny.library)(x))


def test_partition_shows_where_operators_go(
    tiny: CompiledCase, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["partition", str(tiny.source), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads(json.dumps(tiny.report.to_json()))
    assert main(["partition", str(tiny.source)]) == 0
    assert "100" in capsys.readouterr().out


def dynamic_model() -> onnx.ModelProto:
    """tiny with a dynamic batch."""
    graph = GraphBuilder("dynamic", seed=1)
    x = graph.input("x", ("batch", 3, 12, 10))
    graph.output(graph.op("Relu", graph.conv(x, (3, 20), 3)), "y", ("batch", 20, 12, 10))
    return graph.build()


def test_a_dynamic_axis_may_get_a_size(tmp_path: Path) -> None:
    source, library = tmp_path / "dynamic.onnx", tmp_path / "dynamic.so"
    onnx.save(dynamic_model(), source)
    given = ["--input-shapes", "x:[2,3,12,10]"]
    assert main(["compile", str(source), "-o", str(library), *given]) == 0
    assert byoc.load(library).inputs[0].shape == (2, 3, 12, 10)


def test_threads_are_stored(tiny: CompiledCase, tmp_path: Path) -> None:
    library = tmp_path / "two.so"
    assert main(["compile", str(tiny.source), "-o", str(library), "--threads", "2"]) == 0
    check = (
        f"import byoc, tvm_ffi; byoc.load({str(library)!r})\n"
        "print(tvm_ffi.get_global_func('runtime.NumThreads')())"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TVM_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", check], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.stdout == "2\n", done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compile", "absent.onnx", "-o", "m.so"], "absent.onnx"),
        (["compile", "{garbage}", "-o", "m.so"], "garbage.onnx"),
        (["compile", "{tiny}", "-o", "/no/such/folder/m.so"], "there is no folder /no/such/folder"),
        (["compile", "{tiny}", "-o", "m.bin"], "must end in .so"),
        (["compile", "{tiny}"], "--output"),
        (["compile", "{tiny}", "-o", "m.so", "--fast"], "--fast"),
        (["compile", "{tiny}", "-o", "m.so", "--input-shapes", "q:[1,2]"], "q"),
        (["compile", "{tiny}", "-o", "m.so", "--input-shapes", "x=1"], "need NAME:[1,3,224,224]"),
        (["compile", "{tiny}", "-o", "m.so", "--input-shapes", "x:[1,1.5]"], "whole numbers"),
        (["compile", "{tiny}", "-o", "m.so", "--input-shapes", "x:[0,3]"], "1 or more"),
        (["partition", "absent.onnx"], "absent.onnx"),
        (["run", "absent.so"], "no such file"),
        (["run", "{library}", "-i", "absent.npz"], "no such file"),
        (["run", "{library}", "-i", "{garbage}"], "not an .npz file"),
        (["run", "{library}", "-i", "{npz}"], "unknown input 'z'"),
        (["run", "{library}", "-o", "/no/such/folder/o.npz"], "there is no folder"),
        (["run", "{library}", "-o", "/proc/o.npz"], "/proc takes no files"),
        (["compile", "/dev/zero", "-o", "m.so"], "/dev/zero: is a device, a pipe or a socket"),
        (["compile", "{tiny}", "-o", "m.so", "--dump-ir", "/proc/x"], "/proc takes no files"),
        (["partition", "{tiny}", "--html", "/proc/page.html"], "/proc takes no files"),
        (["run", "{library}", "--repeat", "0"], "--repeat"),
        (["run", "{library}", "--fill-mode", "sevens"], "--fill-mode"),
        (["run", "{library}", "--threads", "0"], "--threads"),
        (["fly"], "fly"),
    ],
)
def test_wrong_use_is_one_line(
    tiny: CompiledCase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "garbage.onnx").write_bytes(b"\x00\xffthis is not a model")
    np.savez(tmp_path / "wrong.npz", z=tiny_input())
    names = {
        "{garbage}": "garbage.onnx",
        "{tiny}": str(tiny.source),
        "{library}": str(tiny.library),
        "{npz}": "wrong.npz",
    }
    assert message in error_of(capsys, *(names.get(a, a) for a in arguments))
    assert not (tmp_path / "m.so").exists()


def test_verbose_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "absent.so", "-v"]) == 2
    captured = capsys.readouterr().err
    assert "Traceback" in captured
    assert captured.splitlines()[-1].startswith("error: ")


@pytest.mark.slow
def test_missing_compiler_names_the_package(tiny: CompiledCase, tmp_path: Path) -> None:
    (tmp_path / "ziglang").mkdir()  # an empty package, in front of one with a compiler
    (tmp_path / "ziglang" / "__init__.py").touch()
    paths = {"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path), "CC": "", "CXX": ""}
    done = command("compile", tiny.source, "-o", tmp_path / "m.so", **paths)
    assert done.returncode == 2
    assert "'apt install gcc' or pip install 'tvm-byoc-ext[compiler]'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("m.so*"))


def test_input_shapes_syntax() -> None:
    parse = InputShapes().convert
    assert parse("x:[1,3]", None, None) == {"x": [1, 3]}
    assert parse("a:[1, 3] b : [2]", None, None) == {"a": [1, 3], "b": [2]}
    assert parse("a:[1],b:[2]", None, None) == {"a": [1], "b": [2]}
    assert parse("serving:0:[4]", None, None) == {"serving:0": [4]}
    assert parse("scalar:[]", None, None) == {"scalar": []}
    assert parse("x:[n, 3, 32 * h,w*2]", None, None) == {"x": ["n", 3, "32*h", "2*w"]}


@pytest.fixture(scope="module")
def symbolic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = GraphBuilder("symbolic", seed=0)
    x = graph.input("x", (1, 3, "height", "width"))
    graph.output(graph.op("Relu", graph.conv(x, (3, 8), 3)), "y", (1, 8, "height", "width"))
    folder = tmp_path_factory.mktemp("symbolic")
    onnx.save(graph.build(), folder / "m.onnx")
    shapes = "x:[1,3,16*h,w]"
    done = command("compile", folder / "m.onnx", "-o", folder / "m.so", "--input-shapes", shapes)
    assert done.returncode == 0, done.stderr
    return folder / "m.so"


@pytest.mark.slow
def test_symbolic_inputs_are_filled_in_their_smallest_size(
    symbolic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(symbolic)]) == 0
    assert capsys.readouterr().out == "y: float32[1, 8, 16, 1]\n"
    assert main(["run", str(symbolic), "--input-shapes", "x:[1,3,48,50]"]) == 0
    assert capsys.readouterr().out == "y: float32[1, 8, 48, 50]\n"


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("x:[1,3,h,8]", "--input-shapes: 'x' has h; a run needs numbers"),
        ("x:[1,3,20,8]", "axis 2 is 20 and must be 16*h, such as 16 or 32"),
    ],
)
def test_sizes_that_do_not_fit(
    symbolic: Path, capsys: pytest.CaptureFixture[str], shape: str, message: str
) -> None:
    assert message in error_of(capsys, "run", symbolic, "--input-shapes", shape)


@pytest.mark.parametrize("extent", ["h*w", "2*h*3", "-h", "h h", "", "1.5", "0*h", "32*h-32"])
def test_extents_that_cannot_be_read(
    tiny: CompiledCase, capsys: pytest.CaptureFixture[str], extent: str
) -> None:
    shape = f"x:[1,{extent},3]"
    error = error_of(capsys, "partition", tiny.source, "--input-shapes", shape)
    assert f"shape [1,{extent},3] of 'x': '{extent}' is" in error
    assert "need positive whole numbers, names for axes that stay symbolic" in error
