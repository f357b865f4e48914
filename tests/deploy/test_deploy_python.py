"""examples/deploy_python, run as a user would, with TVM's runtime alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from byoc.compiler.compile import compile
from models.squeezenet import squeezenet
from tests.reference import onnxruntime_outputs

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "deploy_python"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``m.so``, ``x.npy`` and ``expected.npy``."""
    folder = tmp_path_factory.mktemp("deploy_python")
    model = squeezenet(size=64)
    compiled = compile(model, folder / "m.so")
    assert len(compiled.report.regions) == 1 and not compiled.report.left
    image = np.random.default_rng(3).standard_normal((1, 3, 64, 64), np.float32)
    np.save(folder / "x.npy", image)
    expected = onnxruntime_outputs(model, {"image": image})
    np.save(folder / "expected.npy", expected["probabilities"][0])
    return folder


def _run(script: str, *arguments: object, then: str = "") -> str:
    """Run an example, and a line of Python behind it; what it prints."""
    text = f"exec(open({str(EXAMPLE / script)!r}).read()); {then}"
    command = [sys.executable, "-c", text, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_NO_COMPILER = "assert 'libtvm_compiler' not in open('/proc/self/maps').read()"


@pytest.mark.parametrize("script", ["classify.py", "plain_tvm.py"])
def test_the_best_classes_are_those_of_onnx_runtime(script: str, folder: Path) -> None:
    printed = _run(script, folder / "m.so", folder / "x.npy", then=_NO_COMPILER)
    expected = np.load(folder / "expected.npy")
    limit = 1e-4 * np.ptp(expected)
    rows = [line.split("  class ") for line in printed.splitlines()]
    assert len(rows) == 5
    assert int(rows[0][1]) == int(expected.argmax())
    for score, number in rows:
        # What is printed has seven decimals.
        assert abs(float(score) - expected[int(number)]) <= limit + 5e-8


def test_many_threads(folder: Path) -> None:
    printed = _run("many_threads.py", folder / "m.so", 4, 5, then=_NO_COMPILER)
    assert printed.endswith(" calls per second\n") and float(printed.split()[0]) > 0
