"""Libraries of installed packages, found by their entry point."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from tests.libraries.sample import two_products

ROOT = Path(byoc.__file__).parents[1]
PLUGIN = Path(__file__).parent / "plugin"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with the plug-in in it, as pip puts it there."""
    for tool in ("pip", "setuptools"):
        if importlib.util.find_spec(tool) is None:
            pytest.skip(f"installing the plug-in needs {tool}")
    folder = tmp_path_factory.mktemp("plugin")
    source, target = folder / "source", folder / "site"
    shutil.copytree(PLUGIN, source, ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", target]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, source], check=True)
    return target


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``byoc`` in a process of its own that sees the packages of a folder."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "byoc", *arguments],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_found_used_and_run(site: Path, tmp_path: Path) -> None:
    model, library = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(two_products(), model)
    done = command(
        site, *("compile", str(model), "-o", str(library), "--json"), "--library",
        "example_plugin,builtin",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    nodes = json.loads(done.stdout)["report"]["nodes"]
    assert [node["library"] for node in nodes].count("example_plugin") == 2
    draw = np.random.default_rng(2)
    x = draw.standard_normal((5, 32), dtype=np.float32)
    first, second = (onnx.numpy_helper.to_array(t) for t in two_products().graph.initializer)
    expected = np.maximum(x @ first, 0) @ second
    # Without the package on the path: the kernel is inside the model.
    np.testing.assert_allclose(byoc.load(library)(x), expected, rtol=1e-4, atol=1e-4)


def test_listed_with_its_package(site: Path) -> None:
    done = command(site, "libraries", "--json")
    assert done.returncode == 0, done.stderr
    found = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert list(found) == ["builtin", "cblas", "onednn", "example_plugin"]
    plugin = found["example_plugin"]
    assert (plugin["origin"], plugin["version"]) == ("byoc-example-plugin", "0.3")
    assert plugin["linked"] == "static"
    assert plugin["operators"]["matmul"][""] is None
    assert plugin["operators"]["conv2d"][""] == "operator conv2d; need one of matmul"


def fake_package(folder: Path, package: str, name: str, body: str) -> None:
    """A package with one module and one entry point, as an installer leaves it."""
    (folder / f"{package}.py").write_text(body)
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[byoc.libraries]\n{name} = {package}:LIBRARY\n")


EMPTY = (
    "from byoc.library import Library, Link\n"
    "LIBRARY = Library('{}', version='1', abi=1, link=Link(), kernels=[])\n"
)


@pytest.mark.slow
def test_two_packages_of_one_name(tmp_path: Path) -> None:
    """Whoever does not ask for that name is not disturbed."""
    for package in ("first_package", "second_package"):
        fake_package(tmp_path, package, "twin", EMPTY.format("twin"))
    onnx.save(two_products(), tmp_path / "m.onnx")
    asked = ["partition", str(tmp_path / "m.onnx"), "--library"]
    done = command(tmp_path, *asked, "twin,builtin")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: two kernel libraries are called twin: first_package:LIBRARY and")
    assert "second_package:LIBRARY; uninstall one" in line
    assert command(tmp_path, *asked, "builtin").returncode == 0
    listed = {entry["name"]: entry for entry in _listed(tmp_path)}
    assert "two kernel libraries are called twin" in listed["twin"]["missing"]


@pytest.mark.slow
def test_a_package_that_takes_a_shipped_name(tmp_path: Path) -> None:
    fake_package(tmp_path, "impostor", "cblas", EMPTY.format("cblas"))
    onnx.save(two_products(), tmp_path / "m.onnx")
    asked = ["partition", str(tmp_path / "m.onnx"), "--library"]
    done = command(tmp_path, *asked, "cblas")
    assert done.returncode == 2 and "two kernel libraries are called cblas" in done.stderr
    assert command(tmp_path, *asked, "builtin").returncode == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("import no_such_module\nLIBRARY = 1\n", "ModuleNotFoundError: No module named 'no_such_"),
        ("", "AttributeError: module 'broken' has no attribute 'LIBRARY'"),
        (EMPTY.format("other"), "calls itself other; give both the same name"),
    ],
)
def test_a_package_that_is_broken(tmp_path: Path, body: str, message: str) -> None:
    """It is listed with its error; the others work."""
    fake_package(tmp_path, "broken", "broken", body)
    listed = {entry["name"]: entry for entry in _listed(tmp_path)}
    assert "broken" in listed["broken"]["missing"] and message in listed["broken"]["missing"]
    assert "operators" in listed["builtin"]


def _listed(folder: Path) -> list[dict]:
    done = command(folder, "libraries", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
