"""Candidates in a process of their own: ``python -m byoc.tuning.worker LIBRARY.so THREADS CORES``.

For each line of JSON on stdin, ``{"arrays": FILE.npz, "symbols": [...], "shape": [...], "rounds":
N}``, all these packed functions of the library compute one layer and take turns.  Answers are lines
of JSON: ``{"running": symbol}`` before a first run, which may end the process, ``{"running": ""}``
after all of them, then the results, ``{"milliseconds": {symbol: [...]}, "wrong": {symbol:
reason}}``.  End of input ends it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import numpy as np

#: Greatest error, as a share of the result's range; that of ``byoc.bench.layers``.
TOLERANCE = 1e-4

#: Runs in a turn.
_RUNS = 4
#: A candidate this many times slower than the fastest stops at once, or after half of the rounds.
_HOPELESS, _SLOW = 10.0, 1.5
#: Milliseconds of a run after which a turn ends.
_GIVEN_UP_MS = 1000.0
#: Seconds in which threads fall asleep that a library of its own keeps spinning after a call.
_REST = 0.01
#: Bytes that are read before each run, as a network reads the weights of its other layers between
#: two runs of one: they push the layer's own out of the caches, and only its inputs are there.
#: Warm, F(6, 3) with its 64 weights for 9 looked 6 % faster than F(4, 3) on two layers of
#: ResNet-50 in which it was slower inside the network.
_OTHER_BYTES = 64_000_000


def main() -> None:
    """Serve layers until stdin ends."""
    library, threads, cores = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted parent closes stdin
    # Before a library starts its threads, which inherit this.
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    # Libraries print; what they print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # TVM's FFI imports PyTorch where it is installed: seconds and 200 MB for nothing.
    sys.modules["torch"] = None  # type: ignore[assignment]
    from byoc.loader import start_runtime

    start_runtime(int(threads))
    import tvm_ffi

    module = tvm_ffi.load_module(library)
    for line in sys.stdin:
        request = json.loads(line)
        # The process's own time does not run while another process has the core.
        clock = time.process_time if int(threads) == 1 else time.perf_counter
        race = _Race(module, Path(request["arrays"]), clock)
        race.check(request["symbols"], request["shape"], answers)
        milliseconds = race.run(request["rounds"])
        _say(answers, milliseconds=milliseconds, wrong=race.wrong)


def _say(answers: TextIO, **values: object) -> None:
    print(json.dumps(values), file=answers, flush=True)


class _Race:
    """One layer: who answers right, and how long each of those takes."""

    def __init__(self, module: object, arrays: Path, clock: Callable[[], float]) -> None:
        import numpy as np

        with np.load(arrays) as file:
            names = sorted((n for n in file.files if n != "expected"), key=lambda n: int(n[5:]))
            self.inputs = [_aligned(file[name]) for name in names]
            self.answers = [file["expected"]] if "expected" in file.files else []
        self.module, self.clock = module, clock
        self.runs: dict[str, Callable[[], None]] = {}
        self.wrong: dict[str, str] = {}

    def check(self, symbols: Sequence[str], shape: Sequence[int], answers: TextIO) -> None:
        """Run each candidate once; ``shape`` is the result's.

        The first is the reference of the others, beside what the file of arrays expects.
        """
        import numpy as np
        import tvm_ffi

        inputs = [tvm_ffi.from_dlpack(array) for array in self.inputs]
        for symbol in symbols:
            _say(answers, running=symbol)
            # What a kernel does not write stays NaN, and so differs.
            output = _aligned(np.full(shape, np.nan, np.float32))
            arguments = [*inputs, tvm_ffi.from_dlpack(output)]
            function = self.module[symbol]
            try:
                function(*arguments)
            except Exception as error:
                self.wrong[symbol] = (str(error).strip() or type(error).__name__).splitlines()[0]
                continue
            if reason := self.differs(output):
                self.wrong[symbol] = reason
                continue
            if not self.runs:
                self.answers.append(output.copy())
            self.runs[symbol] = _bound(function, arguments)
        _say(answers, running="")

    def differs(self, output: np.ndarray) -> str:
        """Why an answer is wrong, or nothing."""
        from byoc.bench.interleave import relative_error

        error = max((relative_error([output], [right]) for right in self.answers), default=0.0)
        return f"wrong by {error:.1e} of the range (limit {TOLERANCE:g})" * (error > TOLERANCE)

    def run(self, rounds: int) -> dict[str, list[float]]:
        """Milliseconds of each candidate's runs, in turns of ``_RUNS``."""
        import numpy as np

        others = np.ones(_OTHER_BYTES // 4, np.float32)
        times: dict[str, list[float]] = {symbol: [] for symbol in self.runs}
        for number in range(rounds):
            best = min((min(own) for own in times.values() if own), default=0.0)
            for symbol, own in times.items():
                limit = best * (_SLOW if 2 * number >= rounds > 1 else _HOPELESS)
                if own and min(own) > limit:
                    continue
                time.sleep(_REST)
                for _ in range(_RUNS):
                    others.sum()
                    for array in self.inputs:
                        array.sum()
                    own.append(self.timed(self.runs[symbol]))
                    if own[-1] > _GIVEN_UP_MS:
                        break
        return times

    def timed(self, run: Callable[[], None]) -> float:
        """Milliseconds of one run."""
        begin = self.clock()
        run()
        return (self.clock() - begin) * 1e3


def _bound(function: Callable[..., object], arguments: Sequence[object]) -> Callable[[], None]:
    def run() -> None:
        function(*arguments)

    return run


def _aligned(array: np.ndarray) -> np.ndarray:
    from codegen_cc.abi import aligned

    copy = aligned(array.shape)
    copy[...] = array
    return copy


if __name__ == "__main__":
    main()
