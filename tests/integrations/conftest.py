"""A compiled network, and processes in the engines' environment beside that of the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.integrations.networks import COUNT, classifier, compile_whole, images, pictures
from tests.reference import onnxruntime_outputs

ROOT = Path(__file__).parents[2]
#: Where ``make test-all`` installs Ray, MLServer and Triton's clients.
APART = Path(sys.prefix, "serving")
_SECONDS = 300  # for processes on a machine that does much besides; they take a tenth of it


def environment(**more: str) -> dict[str, str]:
    """That of a process which finds the engines, and this checkout, but no compiler of TVM's."""
    paths = os.pathsep.join([str(APART), str(ROOT)])
    own = {"PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TVM_", "OMP_", "MLSERVER_"))}
    return kept | own | more


@dataclass(frozen=True)
class Network:
    """A compiled network beside its source."""

    source: onnx.ModelProto
    library: Path


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    source = classifier()
    return Network(source, compile_whole(source, tmp_path_factory.mktemp("net") / "classifier.so"))


@pytest.fixture(scope="session")
def expected(network: Network) -> np.ndarray:
    """What ONNX Runtime says of all pictures."""
    return onnxruntime_outputs(network.source, {"image": images(pictures(COUNT))})["scores"]


@pytest.fixture(scope="session")
def in_engines(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """``in_engines(module, *arguments)``: what a module prints as its last line, as JSON."""
    assert APART.is_dir(), f"{APART} is missing; make test-all installs it"
    folder = tmp_path_factory.mktemp("engines")

    def run(module: str, *arguments: object) -> Any:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        log = folder / f"{module}.log"
        with log.open("w") as messages:
            process = subprocess.Popen(
                command,
                env=environment(),
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=messages,
                text=True,
            )
            try:
                said, _ = process.communicate(timeout=_SECONDS)
            except subprocess.TimeoutExpired:
                process.terminate()  # it ends what it started
                process.communicate(timeout=30)
                raise
        assert process.returncode == 0, log.read_text()[-4000:] + said[-2000:]
        return json.loads(said.splitlines()[-1])

    return run
