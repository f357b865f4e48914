"""``make release``: what its steps put into wheels, and what they refuse."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from codegen_cc.link import foreign_kernels
from codegen_cc.link.foreign_kernels import kernel_file
from codegen_cc.runtime_files import RUNTIME
from codegen_cc.target import Target
from release.wheels import ROOT, TRIPLES, ReleaseError, build_wheel, require_holds

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="releases are made on x86")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of this machine, and texts in place of those for another."""
    folder = tmp_path_factory.mktemp("kernels")
    for name in ("include", "lib", "adapters"):
        shutil.copytree(RUNTIME / name, folder / TRIPLES["x86_64"] / name)
    (folder / TRIPLES["aarch64"] / "lib").mkdir(parents=True)
    for name in ("libext_kernels.a", "libext_kernels.so", "libext_standalone.a"):
        (folder / TRIPLES["aarch64"] / "lib" / name).write_text(f"{name} for Arm")
    return folder


@pytest.mark.slow
def test_a_wheel_has_its_kernels_and_the_archives_of_others(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    leave = shutil.ignore_patterns("__pycache__", "_runtime", "build", "*.egg-info")
    for name in ("byoc", "codegen_cc", "models", "runtime"):
        shutil.copytree(ROOT / name, source / name, ignore=leave)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source / name)
    monkeypatch.setenv("PATH", str(tmp_path))  # no make, no gcc: nothing is built
    wheel = build_wheel(source, "x86_64", kernels, tmp_path / "dist", isolated=False)
    assert wheel.name.endswith("-py3-none-manylinux_2_28_x86_64.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        foreign = [name for name in names if "_runtime/foreign/" in name]
        assert sorted(Path(name).name for name in foreign) == [
            "libext_kernels.a",
            "libext_standalone.a",
        ]
        own = archive.read("codegen_cc/_runtime/lib/libext_kernels.a")
        assert own == (RUNTIME / "lib/libext_kernels.a").read_bytes()
        assert "codegen_cc/_runtime/src/Makefile" in names
        archive.extractall(tmp_path / "installed")
    # What is in the wheel is taken where a compiler would otherwise be asked.
    monkeypatch.setattr(foreign_kernels, "RUNTIME", tmp_path / "installed/codegen_cc/_runtime")
    for triple in ("aarch64-linux-gnu", "aarch64-linux-musl"):
        found = kernel_file(Target.parse(triple), "lib/libext_kernels.a")
        assert found.read_text() == "libext_kernels.a for Arm"


def test_kernels_of_no_architecture(kernels: Path, tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    for triple in ("", "m68k-linux-gnu"):
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={"BYOC_KERNELS": str(kernels), "BYOC_TRIPLE": triple},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert f"error: BYOC_TRIPLE names no folder of {kernels}" in done.stderr


@pytest.mark.parametrize(
    ("audited", "fits"),
    [
        ("manylinux_2_27_x86_64", True),
        ("manylinux_2_28_x86_64", True),
        ("manylinux_2_34_x86_64", False),
        ("manylinux_2_17_aarch64", False),
        ("linux_x86_64", False),
    ],
)
def test_a_tag_that_does_not_hold_is_refused(audited: str, fits: bool) -> None:
    if fits:
        require_holds("manylinux_2_28_x86_64", audited)
        return
    with pytest.raises(ReleaseError, match=f"auditwheel finds {audited}"):
        require_holds("manylinux_2_28_x86_64", audited)
