"""Progress: stages with times on a terminal, and nothing elsewhere."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import onnx
import pytest

from byoc.cli import cli, progress
from byoc.cli.progress import Stage
from byoc.terminal import new_console
from tests.test_tiny import tiny_model

ROOT = Path(__file__).resolve().parents[2]
#: Verbs that may take seconds before they print anything.
_LONG = (
    "compile",
    "run",
    "partition",
    "bench",
    "profile",
    "tune",
    "verify",
    "compare",
    "doctor",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("progress") / "tiny.onnx"
    onnx.save(tiny_model(), path)
    return path


def on_a_terminal(*arguments: object) -> tuple[int, str]:
    """Run ``byoc`` with standard error on a terminal; its exit code and what is written there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "byoc", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            said += os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    return process.wait(), said.decode()


@pytest.mark.slow
def test_a_terminal_sees_the_stages(model: Path, tmp_path: Path) -> None:
    code, said = on_a_terminal("compile", model, "-o", tmp_path / "m.so")
    assert code == 0
    assert "load TVM" in said
    assert re.search(r"\x1b\[\?25h", said)  # the cursor is back
    code, said = on_a_terminal("run", tmp_path / "m.so", "--repeat", 100_000)
    assert code == 0 and "run 100000 times" in said
    assert on_a_terminal("run", tmp_path / "m.so", "--repeat", 3, "-q") == (0, "")
    code, said = on_a_terminal("run", tmp_path / "m.so", "-o", tmp_path / "m.so")
    assert code == 2 and "the command names it twice" in said


@pytest.mark.slow
def test_quiet_is_quiet(model: Path) -> None:
    assert on_a_terminal("partition", model, "--quiet") == (0, "")


@pytest.mark.slow
def test_a_pipe_sees_nothing(model: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "byoc", "partition", str(model)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == "" and done.stdout


def test_long_stages_stay_with_their_times() -> None:
    now, console = [10.0], new_console(record=True, width=60, file=io.StringIO())
    stage = Stage(console, lambda: now[0])
    assert str(stage.__rich__()) == "starting"
    for name, seconds in (("import into TVM", 0.3), ("partition [bold]", 61.25), ("link", 2.0)):
        stage.show(name)
        now[0] += seconds
        shown = str(stage.__rich__())
        assert shown == (name if seconds < 1 else f"{name}  {seconds:.0f} s")
    stage.end()
    assert console.export_text() == "   61.2 s  partition [bold]\n    2.0 s  link\n"


@pytest.mark.parametrize("verb", _LONG)
def test_long_verbs_can_be_quiet(verb: str) -> None:
    names = {name for option in cli.commands[verb].params for name in option.opts}
    assert {"-q", "--quiet"} <= names


def test_a_bar_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(quiet: bool) -> str:
        console = new_console(record=True, force_terminal=True, width=80)
        monkeypatch.setattr(progress, "new_console", lambda **_: console)
        with _verb(quiet), progress.bar() as show:
            show("conv [1, 3]", 3, 7)
        return console.export_text()

    assert "3/7" in shown(quiet=False) and "conv [1, 3]" in shown(quiet=False)
    assert shown(quiet=True) == ""


def _verb(quiet: bool) -> click.Context:
    return click.Context(cli, obj=progress.Settings(quiet=quiet))


def test_settings_of_no_verb() -> None:
    outside: Callable[[], progress.Settings] = progress.settings
    assert outside() == progress.Settings()
