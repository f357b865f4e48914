"""``byoc doctor`` and ``byoc completion``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from byoc import diagnosis
from byoc.cli import main
from codegen_cc import c_compiler, target
from codegen_cc.link import foreign_kernels

ROOT = Path(diagnosis.__file__).parents[1]


def test_this_machine_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("ready to compile\n")
    names = ("byoc", "Python", "TVM", "CPU", "kernels", "C compiler", "cache", "ONNX Runtime")
    for what in (*names, "extra onednn"):
        assert f"  {what} " in said
    assert "  ok  library builtin" in said


def test_a_containers_limit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "usable_cores", lambda: list(range(64)))
    monkeypatch.setattr(diagnosis, "within_quota", lambda most: min(most, 3))
    (cpu,) = (finding for finding in diagnosis.diagnose() if finding.what == "CPU")
    assert cpu.found.endswith(", 64 cores (time for 3, by the limit of the container)")


def test_what_is_missing_comes_with_its_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(c_compiler, "_zig_program", lambda: None)
    (tmp_path / "byoc").write_text("a file where the folder of the cache should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["doctor", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    found = {finding["what"]: finding for finding in said["findings"]}
    assert not said["ok"]
    compiler = found["C compiler"]
    assert compiler["needed"] and compiler["remedy"] == c_compiler.INSTALL
    assert "no C compiler" in compiler["missing"] and not compiler["found"]
    assert not found["--target aarch64-linux-musl"]["found"]
    assert found["cache"]["remedy"] == "export XDG_CACHE_HOME=FOLDER"
    assert found["kernels"]["found"]
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "not ready to compile"
    assert f"C compiler (needed): {c_compiler.INSTALL}" in lines


def test_extras_with_packages_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        diagnosis.metadata,
        "requires",
        lambda package: {
            "tvm-byoc-ext": [
                "click<9,>=8",
                'no-such-package-1>=2; extra == "extern"',
                'apache-tvm[one]<1; extra == "rpc"',
            ],
            "apache-tvm": ['no-such-package-2; extra == "one"', 'no-such-3; extra == "two"'],
        }[package],
    )
    extern, rpc = (diagnosis._extra(name, "this") for name in ("extern", "rpc"))
    assert extern.missing == "no-such-package-1, for this"
    assert extern.remedy == "pip install 'tvm-byoc-ext[extern]'"
    assert rpc.missing == "no-such-package-2, for this"


@pytest.mark.skipif(target.HOST.machine != "x86_64", reason="needs a foreign target")
def test_kernels_that_are_built_later_need_make(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Zig compiles for other machines, but building from the sources takes make as well."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(foreign_kernels, "RUNTIME", tmp_path)  # no archives of a wheel
    monkeypatch.setattr(target, "find_compiler", lambda *_: ("/bin/true",))
    what = "--target aarch64-linux-gnu"
    found = {finding.what: finding for finding in diagnosis._cross_compilers()}
    assert found[what].found.endswith("; the kernels are built at the first use")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {finding.what: finding for finding in diagnosis._cross_compilers()}
    assert "needs make" in found[what].missing and found[what].remedy == "apt install make"


def test_the_judge_of_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert diagnosis._onnxruntime().found.endswith(", for byoc verify, byoc compare and byoc bench")
    monkeypatch.setattr(diagnosis, "_version", lambda package: None)
    missing = diagnosis._onnxruntime()
    assert not missing.found and missing.remedy == "pip install onnxruntime"
    assert not missing.needed and "byoc verify" in missing.missing


def test_extras_are_those_of_the_package() -> None:
    tomllib = pytest.importorskip("tomllib")  # of Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = {"test", "fuzz", "demo", "dev", "docs", "release"}
    assert set(diagnosis._EXTRAS) == set(project["optional-dependencies"]) - own


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(tmp_path: Path) -> None:
    (tmp_path / "byoc").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m byoc "$@"\n')
    (tmp_path / "byoc").chmod(0o755)
    script = """
    eval "$(byoc completion bash)"
    COMP_WORDS=(byoc comp); COMP_CWORD=1; _byoc_completion byoc comp byoc
    echo "${COMPREPLY[@]}"
    COMPREPLY=()
    COMP_WORDS=(byoc compile --targ); COMP_CWORD=2; _byoc_completion byoc --targ compile
    echo "${COMPREPLY[@]}"
    """
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert not done.stderr
    assert done.stdout.splitlines() == ["compare compile completion", "--target"]


def test_zsh_and_fish_have_one(capsys: pytest.CaptureFixture[str]) -> None:
    for shell, word in (("zsh", "#compdef byoc"), ("fish", "complete --no-files --command byoc")):
        assert main(["completion", shell]) == 0
        assert word in capsys.readouterr().out
