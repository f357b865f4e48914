"""The wheel: built from the source tree, installed into a fresh environment, used from there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.deploy.networks import inputs_of_two_by_two, two_by_two
from tests.reference import assert_agrees, onnxruntime_outputs

pytestmark = pytest.mark.slow  # what all its tests share takes longest

ROOT = Path(__file__).resolve().parents[2]
#: What belongs to the source, without what builds and tests leave in the tree.
_SOURCE = (
    *("benchmarks", "byoc", "codegen_cc", "models", "runtime"),
    *("setup.py", "pyproject.toml", "README.md", "LICENSE"),
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder ``bin`` of an environment with the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    leave = shutil.ignore_patterns("__pycache__", "_runtime", "build", "*.egg-info")
    for name in (*_SOURCE, "MANIFEST.in"):
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=leave)
        else:
            shutil.copy(path, source / name)
    # The kernels of this tree, which was installed by building them: that takes four minutes.
    kernels = folder / "kernels"
    kernels.mkdir()
    (kernels / "host").symlink_to(ROOT / "codegen_cc" / "_runtime")
    environment = os.environ | {"BYOC_KERNELS": str(kernels), "BYOC_TRIPLE": "host"}
    # setuptools is in this environment; an isolated build would fetch it again.
    # A source distribution, and the wheel out of that.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", "."]
    done = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (sdist,) = (source / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    written = {str(p.relative_to(source)) for p in (source / "runtime").rglob("*") if p.is_file()}
    assert written <= packed  # all that the kernels are built from
    (wheel,) = (source / "dist").glob("*.whl")
    assert "-py3-none-linux_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "codegen_cc/_runtime/lib/libext_kernels.a",
        "codegen_cc/_runtime/src/Makefile",
        "codegen_cc/_runtime/src/simd/neon.h",
        "byoc/py.typed",
        "byoc/_models/zoo.py",
        "byoc/_models/resnet.py",
        "codegen_cc/py.typed",
        "byoc/report/page/page.html",
        "byoc/rpc/probe.c",
        "byoc/tuning/between.c",
    ):
        assert wanted in names
    elsewhere = ("runtime/", "tests/", "models/", "benchmarks/")
    assert not [name for name in names if name.startswith(elsewhere)]
    # What `byoc bench` and `byoc profile` need is Python; programs in C are benchmarks of kernels.
    assert "byoc/bench/networks.py" in names
    assert not [name for name in names if name.startswith("byoc/bench/") and name[-3:] != ".py"]
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    binaries = folder / "env" / "bin"
    # Python compiles what is used: a small part of all that the wheel asks for.
    command = [binaries / "python", "-m", "pip", "install", "--quiet", "--no-compile", wheel]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return binaries


def _run(command: list[object], folder: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_installed_wheel_compiles_inspects_and_runs(installed: Path, tmp_path: Path) -> None:
    model, inputs = two_by_two(), inputs_of_two_by_two(4)
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "in.npz", **inputs)
    byoc = installed / "byoc"
    said = json.loads(_run([byoc, "compile", "model.onnx", "-o", "m.so", "--json"], tmp_path))
    assert len(said["report"]["regions"]) == 1 and not said["report"]["left"]
    about = json.loads(_run([byoc, "inspect", "m.so", "--json"], tmp_path))
    assert about["entry"]["symbol"] == said["report"]["regions"][0]["name"]
    _run([byoc, "run", "m.so", "-i", "in.npz", "-o", "out.npz"], tmp_path)
    with np.load(tmp_path / "out.npz") as file:
        assert_agrees({name: file[name] for name in file.files}, onnxruntime_outputs(model, inputs))


def test_plain_tvm_finds_the_backend_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    script = (
        "import tvm; assert tvm.get_global_func('relax.ext.ext');"
        "import byoc, codegen_cc; print(byoc.__file__)"
    )
    place = _run([installed / "python", "-c", script], tmp_path)
    assert Path(place.strip()).is_relative_to(installed.parent)


def test_the_zoo_is_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    printed = _run([installed / "python", "-m", "byoc.zoo", "squeezenet", "-o", "s.onnx"], tmp_path)
    assert printed.startswith("s.onnx: SqueezeNet 1.1, ")
    onnx.checker.check_model(tmp_path / "s.onnx")
    command = [installed / "byoc", "bench", "squeezenet", "--engines", "byoc", "--rounds", "1"]
    answer = json.loads(_run([*command, "--threads", "1", "--json"], tmp_path))
    assert [row["model"] for row in answer["rows"]] == ["squeezenet"]
    script = "import byoc.zoo; print(*byoc.zoo.networks())"
    names = _run([installed / "python", "-c", script], tmp_path).split()
    assert {"resnet50", "bert", "densenet121", "ppocr_det"} <= set(names)
