"""``python -m benchmarks.footprint``: its numbers, tables and verdicts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import onnx
import pytest

from benchmarks import footprint
from benchmarks.footprint import Compilation, Footprint, Start, main
from benchmarks.process_memory import run_watched
from byoc.bench.machine import peak_mb
from tests.test_tiny import tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("footprint") / "tiny.onnx"
    onnx.save(tiny_model(), path)
    return path


def made_up(**changes: object) -> Footprint:
    """A network for which every target is met, but for what ``changes`` of ours."""
    values = {"seconds": 5.0, "peak_mb": 390.0, "load_ms": 20.0, "first_ms": 150.0, "run_mb": 200.0}
    values |= changes
    compilation = Compilation(
        [values["seconds"], 9.0], {"start": 1.5, "link": 0.5}, values["peak_mb"], "ld", 150.0, 160.0
    )
    ours = Start(
        "byoc", [30.0], [values["load_ms"], 40.0], [0.2], [values["first_ms"]], [80.0],
        [values["run_mb"]],
    )  # fmt: skip
    peer = Start("onnxruntime", [20.0], [400.0], [0.6], [90.0], [85.0], [300.0])
    return Footprint("resnet50", "ResNet-50", 100.0, compilation, [ours, peer])


@pytest.mark.slow
def test_a_tiny_network(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main([str(tiny), "--repeats", "1", "--json"])
    result = json.loads(capsys.readouterr().out)
    (network,) = result["networks"]
    compilation = network["compilation"]
    assert {"start", "import into TVM", "generate code", "link"} <= set(compilation["stages"])
    assert sum(compilation["stages"].values()) == pytest.approx(min(compilation["seconds"]))
    assert 50 < compilation["peak_mb"] < 2000 and 0 < compilation["tools_mb"] < 1000
    assert [start["engine"] for start in network["starts"]] == ["byoc", "onnxruntime"]
    for start in network["starts"]:
        assert all(start[key][0] > 0 for key in start if key != "engine")
        assert start["process_s"][0] > start["load_ms"][0] * 1e-3
    # The network is far smaller than the compiler, so that target is missed.
    assert status == 1 and sum("MISSES" in line for line in result["checks"]) >= 1


def test_targets() -> None:
    lines = made_up().checks()
    assert len(lines) == 5 and not [line for line in lines if "MISSES" in line]
    for key, value, text in (
        ("seconds", 6.5, "ResNet-50: compiling 6.50 s, MISSES 6.00"),
        ("peak_mb", 410.0, "ResNet-50: compiler's memory 4.10 model files, MISSES 4.00"),
        ("load_ms", 31.0, "ResNet-50: loading 31.00 ms, MISSES 30.00"),
        ("first_ms", 170.0, "ResNet-50: first run 2.12 later runs, MISSES 2.00"),
        ("run_mb", 301.0, "ResNet-50: memory of a run 301.00 MB, MISSES 300.00"),
    ):
        assert [x for x in made_up(**{key: value}).checks() if "MISSES" in x] == [text]


def test_tables_and_markdown() -> None:
    compiling, starting = footprint.sheets([made_up()])
    row = dict(zip(compiling.headings, compiling.rows[0], strict=True))
    assert (row["network"], row["s min"], row["link"], row["/ ONNX"]) == (
        "ResNet-50", "5.00", "0.50", "3.90",
    )  # fmt: skip
    assert [row[1] for row in starting.rows] == ["byoc", "ONNX Runtime"]
    assert starting.markdown().splitlines()[-1].startswith("| ResNet-50 | ONNX Runtime | 20.0 |")


def test_bad_arguments_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: no model 'nothing'")


def test_memory_of_a_process_and_of_what_it_starts() -> None:
    """The command holds 60 MB, a program of another name that it starts much less."""
    script = "import subprocess; b = bytearray(60_000_000); subprocess.run(['sleep', '0.2'])"
    done = run_watched([sys.executable, "-c", script], dict(os.environ))
    assert done.status == 0 and done.seconds > 0.2
    assert 60 < done.peak_mb < 200 and len(done.tools) == 1
    assert 0 < next(iter(done.tools.values())) < 30
    assert peak_mb() > 10 and peak_mb(0) == 0.0


@pytest.mark.slow
def test_pytorch_is_left_out_and_can_be_imported_later(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('TVM imported it')\n")
    script = (
        "import sys; from byoc.cli.process import import_without_torch, give_large_blocks_back\n"
        "give_large_blocks_back(); import_without_torch('tvm_ffi')\n"
        "assert 'tvm_ffi' in sys.modules and 'torch' not in sys.modules\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = run_watched([sys.executable, "-c", script], environment)
    assert done.status == 0, done.messages


def test_only_what_a_verb_needs_is_imported() -> None:
    """A verb that runs a library needs nothing of what compiles one."""
    script = (
        "import sys; from byoc.cli import cli\n"
        "assert not {'numpy', 'byoc.cli.run'} & sys.modules.keys()\n"
        "assert {'run', 'compile'} <= set(cli.commands) and cli.commands['run'].name == 'run'\n"
        "assert 'sympy' not in sys.modules\n"
        "assert cli.commands.get('compil') is None\n"
        "cli.commands['compile']; assert 'sympy' in sys.modules\n"
    )
    done = run_watched([sys.executable, "-c", script], dict(os.environ))
    assert done.status == 0, done.messages
