"""Time several engines on one model in one interleaved run.

On a shared machine the speed drifts, so times from different minutes cannot be compared.  Here
every engine sits loaded in a process of its own, and they take turns in short bursts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from byoc.array_files import stored_arrays
from byoc.bench.engines import ENGINES
from byoc.bench.machine import peak_mb
from byoc.bench.precision import FP32
from byoc.bench.worker_process import WorkerProcess
from byoc.errors import BenchmarkError
from byoc.machine import choose_cores

#: What tells libraries how many threads to use; pinning is by the process, not by TVM's pool.
_COUNTS = ("TVM_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

#: Runs; a single one may have met another process.
WARM_UPS = 3
_REST = 0.02  # seconds in which the waiting threads of the engine before fall asleep


def thread_environment(threads: int) -> dict[str, str]:
    """The environment of a process in which every engine uses so many threads."""
    return os.environ | dict.fromkeys(_COUNTS, str(threads)) | {"TVM_BIND_THREADS": "0"}


class _Failed(BenchmarkError):
    """An engine could not load a model, or died; ``reason`` does not name it."""

    def __init__(self, title: str, reason: str) -> None:
        super().__init__(f"{title}: {reason}")
        self.reason = reason


@dataclass(frozen=True)
class Turns:
    """How engines take turns: an engine keeps its turn for ``burst_ms`` milliseconds.

    One that needs more than ``slow_ms`` for a run makes a single run in each of ``slow_rounds``.
    """

    burst_ms: float = 400.0
    slow_ms: float = 1000.0
    slow_rounds: int = 2


@dataclass(frozen=True)
class Entrant:
    """Who takes part, under which name: a key of ``ENGINES``, what it loads, an npz of inputs."""

    name: str
    engine: str
    model: Path
    inputs: Path
    precision: str = FP32


@dataclass
class Timing:
    """What one engine did: milliseconds of each run, outputs, and most memory ever used."""

    engine: str
    threads: int
    milliseconds: list[float] = field(default_factory=list)
    outputs: list[np.ndarray] = field(default_factory=list)
    peak_mb: float | None = None

    @property
    def title(self) -> str:
        """The engine's name in tables."""
        return ENGINES[self.engine].title if self.engine in ENGINES else self.engine

    def percentile(self, percent: float) -> float:
        """Milliseconds that ``percent`` of the runs did not exceed."""
        return float(np.percentile(self.milliseconds, percent))


class _Worker:
    def __init__(
        self, entrant: Entrant, threads: int, cores: Sequence[int], folder: Path, turns: Turns
    ) -> None:
        self.timing = Timing(entrant.name, threads)
        self.slow = False
        self._turns = turns
        self._outputs = folder / f"{entrant.name}-{threads}.npz"
        self._messages = folder / f"{entrant.name}-{threads}.txt"
        self._burst = 1
        files = [entrant.model, entrant.inputs, self._outputs]
        counts = [str(threads), ",".join(map(str, cores))]
        given = [entrant.engine, *map(str, files), *counts, entrant.precision]
        environment = thread_environment(threads)
        self._process = WorkerProcess("byoc.bench.worker", given, self._messages, environment)

    def wait(self) -> None:
        """Wait until it has loaded the model and run it once."""
        answer = self._line()
        if answer != "ready":
            hint = next((f" ({line})" for line in self._said()), "")
            raise _Failed(self.timing.title, answer.removeprefix("error: ") + hint)
        self.timing.outputs = list(stored_arrays(self._outputs).values())

    def warm_up(self) -> None:
        """Run some more, and choose the length of its turns."""
        once = self._run(1)[0]
        if once < self._turns.burst_ms:
            once = min(self._run(WARM_UPS))
        self._burst = max(1, round(self._turns.burst_ms / once))
        self.slow = once > self._turns.slow_ms

    def turn(self) -> None:
        """Run one burst; its first run finds cold caches and sleeping threads and is dropped."""
        time.sleep(_REST)
        if self.slow:
            self.timing.milliseconds += self._run(1)
        else:
            self.timing.milliseconds += self._run(self._burst + 1)[1:]

    def stop(self) -> None:
        """End the process, note its memory, pass on what it wrote to its standard error."""
        self.timing.peak_mb = peak_mb(self._process.pid) or None
        self._process.end()
        sys.stderr.write(_read(self._messages))

    def _run(self, count: int) -> list[float]:
        self._process.tell(str(count))
        return json.loads(self._line())

    def _line(self) -> str:
        line = self._process.line()
        if not line:
            status = self._process.end()
            lines = self._said() or [f"exit status {status}"]
            raise _Failed(self.timing.title, f"stopped: {lines[-1]}")
        return line

    def _said(self) -> list[str]:
        """Take the lines that it wrote to its standard error, for the reason of a failure."""
        lines = [line.strip() for line in _read(self._messages).splitlines() if line.strip()]
        self._messages.write_text("", encoding="utf-8")
        return lines


def take_turns(
    entrants: Sequence[Entrant],
    threads: int,
    rounds: int,
    folder: Path,
    turns: Turns = Turns(),
    failed: dict[str, str] | None = None,
) -> list[Timing]:
    """Time each entrant in a process of its own, in interleaved bursts.

    All are loaded before the first one is timed.  Where ``failed`` is given, entrants that die are
    left out and their names and reasons added to it; else that raises ``BenchmarkError``.
    """
    cores = choose_cores(threads)
    with ExitStack() as stack:
        workers = []
        for entrant in entrants:
            workers.append(_Worker(entrant, threads, cores, folder, turns))
            stack.callback(workers[-1].stop)

        def each(action: Callable[[_Worker], None]) -> None:
            for worker in list(workers):
                try:
                    action(worker)
                except _Failed as error:
                    if failed is None:
                        raise
                    failed[worker.timing.engine] = error.reason
                    workers.remove(worker)

        each(_Worker.wait)
        each(_Worker.warm_up)
        for number in range(rounds):
            each(partial(_turn, late=number >= turns.slow_rounds))
        return [worker.timing for worker in workers]


def _turn(worker: _Worker, late: bool) -> None:
    if not (late and worker.slow):
        worker.turn()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
