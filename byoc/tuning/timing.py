"""Time the candidates of layers, all in one worker process, and outlive those that crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from statistics import median
from threading import Timer

from byoc.errors import TuningError
from byoc.machine import choose_cores
from byoc.tuning.build import BuiltLayer, Pair, laid_out_shape
from byoc.tuning.layers import TunableLayer
from codegen_cc.libraries.measured_choice import Time

#: What tells libraries how many threads to use; pinning is by the process, not by TVM's pool.
_COUNTS = ("TVM_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


#: Seconds that the first run of a candidate may take.
_FIRST_RUN_LIMIT = 60.0
#: Seconds that a worker has to end by itself.
_PATIENCE = 2.0


class _Died(Exception):
    """The worker ended; ``symbol`` is what it ran at that time."""

    def __init__(self, symbol: str, reason: str) -> None:
        super().__init__(reason)
        self.symbol = symbol


class TimedLayer:
    """What became of the candidates of one layer: a time, or why there is none."""

    def __init__(self, built: BuiltLayer) -> None:
        self.layer = built.layer
        self.checked_by = built.checked_by
        self.times: dict[Pair, Time] = {}
        self.failed = dict(built.failed)


def time_layers(
    library: Path,
    layers: Sequence[BuiltLayer],
    threads: int,
    rounds: int,
    progress: Callable[[TunableLayer], None],
) -> list[TimedLayer]:
    """Check and time all candidates of the layers in a library, on as many cores as threads.

    ``progress`` is called with each layer when its turn comes. Raises ``TuningError`` where the
    worker cannot work at all, ``BenchmarkError`` where there are too few cores.
    """
    timed = [TimedLayer(built) for built in layers]
    worker = _Worker(library, threads)
    try:
        for built, result in zip(layers, timed, strict=True):
            progress(built.layer)
            while True:
                try:
                    _race(worker, built, result, rounds)
                    break
                except _Died as death:
                    pairs = {symbol: pair for pair, symbol in built.symbols.items()}
                    if death.symbol not in pairs:
                        raise TuningError(f"cannot time candidates: {death}") from None
                    result.failed[pairs[death.symbol]] = str(death)
                    worker.stop()
                    worker = _Worker(library, threads)
    finally:
        worker.stop()
    return timed


def _race(worker: _Worker, built: BuiltLayer, result: TimedLayer, rounds: int) -> None:
    pairs = {s: pair for pair, s in built.symbols.items() if pair not in result.failed}
    node = built.layer.node
    shape = list(laid_out_shape(node, node.shape))
    request = {"arrays": str(built.arrays), "symbols": list(pairs), "shape": shape}
    answer = worker.ask(request | {"dtype": node.dtype, "rounds": rounds})
    for symbol, reason in answer["wrong"].items():
        result.failed[pairs[symbol]] = reason
    for symbol, times in answer["milliseconds"].items():
        result.times[pairs[symbol]] = Time(min(times), median(times))


class _Worker:
    def __init__(self, library: Path, threads: int) -> None:
        cores = ",".join(map(str, choose_cores(threads)))
        self._watch = Timer(_FIRST_RUN_LIMIT, lambda: None)
        self._said = library.with_name("worker.txt")
        with self._said.open("w", encoding="utf-8") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "byoc.tuning.worker", str(library), str(threads), cores],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env=os.environ
                | {name: str(threads) for name in _COUNTS}
                | {"TVM_BIND_THREADS": "0", "TVM_USE_RUNTIME_LIB": "1"},
                text=True,
            )

    def ask(self, request: dict[str, object]) -> dict[str, dict]:
        """Its answer for one layer. Raises ``_Died`` where it gave none."""
        assert self._process.stdin is not None and self._process.stdout is not None
        running = ""
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            self._watch.cancel()
            answer = json.loads(line)
            if "running" not in answer:
                return answer
            running = answer["running"]
            if running:
                self._watch = Timer(_FIRST_RUN_LIMIT, self._process.kill)
                self._watch.start()
        self._watch.cancel()
        raise _Died(running, self._death())

    def stop(self) -> None:
        """End the process and wait for it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._watch.cancel()
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:  # an interrupted race that is not done yet
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _death(self) -> str:
        status = self._process.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        if status == -SIGKILL:
            how += f" (a run may take {_FIRST_RUN_LIMIT:g} s)"
        lines = self._said.read_text(encoding="utf-8", errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return f"its process ended with {how}" + (f": {said[-1]}" if said else "")
