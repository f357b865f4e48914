"""``--target``: levels of x86-64, this machine, and what a missing cross compiler says."""

from __future__ import annotations

import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnx
import pytest

import byoc
import codegen_cc.target
from byoc.cli import main
from byoc.compiler.compile import compile
from byoc.compiler.partitioned import build_kernels
from byoc.deploy.compiled_file import read_compiled
from byoc.errors import ControlError
from byoc.stages import Stages
from codegen_cc.errors import ToolchainError
from codegen_cc.link import foreign_kernels
from codegen_cc.link.foreign_kernels import kernel_archive
from codegen_cc.target import NAMES, X86_64_LEVELS, Target, missing_flags, own_level
from tests.deploy.networks import inputs_of_two_by_two, two_by_two
from tests.reference import assert_agrees, onnxruntime_outputs

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="targets of x86-64")


@pytest.mark.parametrize("name", NAMES)
def test_names_come_back(name: str) -> None:
    target = Target.parse(name)
    assert Target.parse(target.name) == target
    assert target.name == (name if name != "native" else own_level() or "x86-64")


def test_an_unknown_target_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="unknown target 'pdp-11'; known: x86-64, x86-64-v2"):
        compile(two_by_two(), tmp_path / "m.so", target="pdp-11")
    onnx.save(two_by_two(), tmp_path / "model.onnx")
    command = ["compile", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "m.so")]
    assert main([*command, "--target", "pdp-11"]) == 2
    assert not (tmp_path / "m.so").exists()


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "native"])
def test_levels_of_this_machine_run(level: str, tmp_path: Path) -> None:
    """With a softmax left to TVM, which then compiles it for the level."""
    target = Target.parse(level)
    if target.level and (missing := missing_flags(target.level)):
        pytest.skip(f"this CPU lacks {', '.join(missing)}")
    compiled = compile(two_by_two(), tmp_path / "m.so", target=level, skip_ops=["softmax"])
    assert len(compiled.report.regions) == 1 and len(compiled.report.left) == 1
    about = read_compiled(tmp_path / "m.so").metadata().target
    assert about is not None and about.name == target.name
    if target.level:
        assert set(X86_64_LEVELS[target.level]) <= set(about.cpu_flags)
    inputs = inputs_of_two_by_two(0)
    found = byoc.load(tmp_path / "m.so").run(inputs)
    assert_agrees(found, onnxruntime_outputs(two_by_two(), inputs))


def test_the_level_reaches_tvms_compiler(tmp_path: Path) -> None:
    assert Target.parse("x86-64-v3").tvm == {"kind": "llvm", "mcpu": "x86-64-v3"}
    assert Target.parse("aarch64-linux-gnu").tvm == {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}
    assert Target.parse().tvm == "llvm"


def test_flags_of_an_older_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    v2 = " ".join(X86_64_LEVELS["x86-64-v2"])
    info.write_text(f"processor\t: 0\nflags\t\t: fpu {v2} avx fma\n")
    monkeypatch.setattr(codegen_cc.target, "_CPUINFO", info)
    assert own_level() == "x86-64-v2"
    assert missing_flags("x86-64-v3") == tuple(
        flag for flag in X86_64_LEVELS["x86-64-v3"] if flag not in ("avx", "fma")
    )


def test_a_missing_cross_compiler_is_named_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(two_by_two(), tmp_path / "model.onnx")
    monkeypatch.setenv("CROSS_CC", "no-such-gcc")
    command = ["compile", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "m.so")]
    assert main([*command, "--target", "aarch64-linux-gnu"]) == 2
    said = capsys.readouterr().err
    assert "'no-such-gcc' (from $CROSS_CC) is not on the path; install one" in said
    assert "apt install gcc-aarch64-linux-gnu" in said
    assert not (tmp_path / "m.so").exists()


def test_times_measured_here_do_not_decide_for_another_machine(tmp_path: Path) -> None:
    if not _has_cross_compiler():
        pytest.skip("no aarch64-linux-gnu-gcc")
    with pytest.raises(ControlError, match="say nothing of aarch64-linux-gnu"):
        compile(two_by_two(), tmp_path / "m.so", target="aarch64-linux-gnu", choose="measured")
    assert not (tmp_path / "m.so").exists()


def test_kernels_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not _has_cross_compiler():
        pytest.skip("no aarch64-linux-gnu-gcc")
    (tmp_path / "byoc").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ToolchainError, match="set XDG_CACHE_HOME to a folder that can be written"):
        kernel_archive(Target.parse("aarch64-linux-gnu"))


@pytest.fixture
def unbuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources of kernels that are built in no time, and a cache without any."""
    if not _has_cross_compiler():
        pytest.skip("no cross compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources/Makefile").write_text(
        "install:\n\techo built >> said; sleep 0.2; mkdir -p $(DEST)/lib\n"
        "\techo kernels > $(DEST)/lib/libext_kernels.a\n"
    )
    monkeypatch.setattr(foreign_kernels, "sources", lambda: tmp_path / "sources")
    return tmp_path / "sources"


def test_kernels_that_two_need_at_once_are_built_once(unbuilt: Path) -> None:
    with ThreadPoolExecutor() as pool:
        archives = set(pool.map(kernel_archive, [Target.parse("aarch64-linux-gnu")] * 2))
    assert [archive.read_text() for archive in archives] == ["kernels\n"]
    assert (unbuilt / "said").read_text() == "built\n"


def test_building_kernels_is_a_stage_of_its_own(unbuilt: Path) -> None:
    said: list[str] = []
    for name in ("x86-64", "aarch64-linux-gnu", "aarch64-linux-gnu"):
        build_kernels(Target.parse(name), Stages(said.append))
    foreign = "aarch64-linux-gnu" if Target.parse("aarch64-linux-gnu").is_foreign else "x86-64"
    assert said == [f"build the kernels for {foreign}, once"]
    assert (unbuilt / "said").read_text() == "built\n"


def _has_cross_compiler() -> bool:
    try:
        return bool(Target.parse("aarch64-linux-gnu").compiler())
    except ToolchainError:
        return False
