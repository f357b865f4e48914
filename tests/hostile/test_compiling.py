"""Compilations that are killed, meet each other, or run out of room: nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from byoc.cli import main
from byoc.frontends.onnx.measured_model import draw_inputs
from codegen_cc.unfinished import folder_beside
from tests.deploy.networks import inputs_of_two_by_two, two_by_two
from tests.hostile import databases
from tests.reference import onnxruntime_outputs
from tests.tuning import networks

ROOT = Path(byoc.__file__).parents[1]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network in a file."""
    path = tmp_path_factory.mktemp("compiling") / "m.onnx"
    onnx.save(two_by_two(), path)
    return path


def start(model: Path, output: Path, temporary: Path) -> subprocess.Popen[str]:
    """``byoc compile`` in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "byoc", "compile", str(model), "-o", str(output)],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def is_right(library: Path) -> bool:
    """Whether the library answers as ONNX Runtime does."""
    inputs = inputs_of_two_by_two(4)
    found = byoc.load(library, threads=1).run(inputs)
    return all(
        bool(np.abs(found[name] - want).max() <= 1e-4 * np.ptp(want))
        for name, want in onnxruntime_outputs(two_by_two(), inputs).items()
    )


@pytest.mark.slow
def test_two_compilations_to_one_file(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out" / "m.so"
    output.parent.mkdir()
    both = [start(model, output, tmp_path) for _ in range(2)]
    for process in both:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    assert os.listdir(output.parent) == ["m.so"]
    assert is_right(output)


def test_the_longest_names(tmp_path: Path) -> None:
    """A folder beside a file has a longer name than it, of which file systems take 255 bytes."""
    for name in ("n" * 252 + ".so", "\u00fc" * 126 + ".so"):
        byoc.compile(two_by_two(), tmp_path / name)
        assert os.listdir(tmp_path) == [name] and is_right(tmp_path / name)
        (tmp_path / name).unlink()
    with pytest.raises(byoc.CompileError, match=r"File name too long$"):
        byoc.compile(two_by_two(), tmp_path / ("n" * 253 + ".so"))
    assert os.listdir(tmp_path) == []


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """As of archives from systems with other letters."""
    model, library = (tmp_path / os.fsdecode(b"gr\xf6\xdfe" + end) for end in (b".onnx", b".so"))
    onnx.save(two_by_two(), model)
    assert len(byoc.compile(model, library).report.regions) == 1
    with pytest.raises(byoc.LoadError, match="reads paths as UTF-8, which this is not; rename it"):
        byoc.load(library)
    assert is_right(library.rename(tmp_path / "m.so"))
    page = tmp_path / "r.html"
    assert main(["partition", str(model), "--html", str(page), "-q"]) == 0
    assert "</html>" in page.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_killed_compilation_leaves_the_old_file(
    model: Path, tmp_path: Path, end: signal.Signals
) -> None:
    """At the worst moment: while the linker writes beside the output."""
    output = tmp_path / "out" / "m.so"
    output.parent.mkdir()
    output.write_bytes(b"before")
    process = start(model, output, tmp_path)
    limit = time.monotonic() + 100
    while len(os.listdir(output.parent)) == 1 and time.monotonic() < limit:
        time.sleep(0.001)
    os.killpg(process.pid, end)
    process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("the compilation was done before the signal came")
    assert output.read_bytes() == b"before"
    left = [name for name in os.listdir(output.parent) if name != "m.so"]
    if end != signal.SIGKILL:
        assert not left and process.returncode == 128 + end
    # What the process could not take away, whoever writes the file a day later does.
    with folder_beside(output):
        pass
    assert set(left) <= set(os.listdir(output.parent))
    for name in left:
        os.utime(output.parent / name, (0, 0))
    with folder_beside(output):
        pass
    assert os.listdir(output.parent) == ["m.so"]


def test_damaged_databases_are_ignored_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "db.json"
    databases.write_database(path, [f"layer {number}" for number in range(4)])
    counts, bad = databases.read_all(tmp_path, databases.damaged(path.read_bytes(), 300, 5))
    assert bad == []
    assert counts["read"] and counts["ignored with a warning"]


@pytest.mark.slow
def test_compiling_with_damaged_databases(tmp_path: Path) -> None:
    """The races are of the model's own layers, on this machine."""
    model, path = networks.convolutions(), tmp_path / "db.json"
    networks.write_database(path, model, {"Winograd F(4, 3)": 1.0, "implicit GEMM": 2.0})
    inputs = draw_inputs(model)
    want = onnxruntime_outputs(model, inputs)

    def right(library: Path) -> bool:
        found = byoc.load(library, threads=1).run(inputs)
        return all(np.abs(found[n] - w).max() <= 1e-3 * np.ptp(w) for n, w in want.items())

    contents = databases.damaged(path.read_bytes(), 6, 6)
    assert databases.compile_all(tmp_path, contents, model, right) == []
