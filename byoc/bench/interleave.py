"""Time several engines on one model in one interleaved run.

On a shared machine the speed drifts, so times from different minutes cannot be compared.  Here
every engine sits loaded in a process of its own, and they take turns in short bursts.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np

from byoc import __version__
from byoc.bench.engines import ENGINES
from byoc.errors import ByocError

_BURST_MS = 400.0  # how long an engine keeps its turn
_SLOW_MS = 1000.0  # engines slower than this get fewer turns
_SLOW_ROUNDS = 2


class BenchmarkError(ByocError):
    """An engine could not be started or died."""


@dataclass
class Timing:
    """What one engine did: milliseconds of each run, and its outputs."""

    engine: str
    threads: int
    milliseconds: list[float] = field(default_factory=list)
    outputs: list[np.ndarray] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The engine's name in tables."""
        return ENGINES[self.engine][1]

    def percentile(self, percent: float) -> float:
        """Milliseconds that ``percent`` of the runs did not exceed."""
        return float(np.percentile(self.milliseconds, percent))


class _Worker:
    def __init__(self, engine: str, model: Path, inputs: Path, threads: int, folder: Path) -> None:
        self.timing = Timing(engine, threads)
        self._outputs = folder / f"{engine}-{threads}.npz"
        self._burst = 1
        command = [sys.executable, "-m", "byoc.bench.worker", engine, model, inputs, self._outputs]
        self._process = subprocess.Popen(
            [*map(str, command), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"TVM_NUM_THREADS": str(threads)},
            text=True,
        )

    def start(self) -> None:
        """Wait until it is loaded, warm it up and choose the length of its turns."""
        if self._line() != "ready":
            raise BenchmarkError(f"{self.timing.title} printed something else than ready")
        with np.load(self._outputs) as file:
            self.timing.outputs = [file[name] for name in file.files]
        once = self.run(1)[0]
        self._burst = max(1, round(_BURST_MS / once))
        self.slow = once > _SLOW_MS

    def turn(self) -> None:
        """Run one burst; its first run finds cold caches and sleeping threads and is dropped."""
        if self.slow:
            self.timing.milliseconds += self.run(1)
        else:
            self.timing.milliseconds += self.run(self._burst + 1)[1:]

    def run(self, count: int) -> list[float]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchmarkError(f"{self.timing.title} stopped; its own message is above")
        return line.strip()


def compare(
    models: dict[str, Path],
    inputs: dict[str, np.ndarray],
    threads: int,
    rounds: int,
    folder: Path,
) -> list[Timing]:
    """Time every engine of ``models`` (engine: file) on the same inputs, taking turns.

    ``folder`` holds temporary files.  Raises ``BenchmarkError``.
    """
    stored = folder / "inputs.npz"
    np.savez(stored, **inputs)
    with ExitStack() as stack:
        workers = []
        for engine, path in models.items():
            worker = _Worker(engine, path, stored, threads, folder)
            stack.callback(worker.stop)
            worker.start()
            workers.append(worker)
        for number in range(rounds):
            for worker in workers:
                if number < _SLOW_ROUNDS or not worker.slow:
                    worker.turn()
        return [worker.timing for worker in workers]


def relative_error(ours: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """Greatest |difference| over all outputs, as a share of that output's range."""
    worst = 0.0
    for mine, theirs in zip(ours, expected, strict=True):
        extent = float(theirs.max() - theirs.min()) or 1.0
        worst = max(worst, float(np.abs(mine - theirs).max()) / extent)
    return worst


def machine() -> str:
    """CPU, its number of cores, and the versions of what is compared."""
    names = [line for line in _read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    cpu = names[0].split(":", 1)[1].strip() if names else platform.processor()
    peers = (("TVM", "apache-tvm"), ("ONNX Runtime", "onnxruntime"))
    versions = ", ".join(f"{title} {version(package)}" for title, package in peers)
    return f"{cpu}, {os.cpu_count()} cores; fp32; byoc {__version__}, {versions}"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
