"""Candidates in a process of their own: ``python -m byoc.tuning.worker LIBRARY.so THREADS CORES``.

For each line of JSON on stdin, ``{"arrays": FILE.npz, "symbols": [...], "shape": [...], "dtype":
"...", "rounds": N}``, all these packed functions of the library compute one layer and take turns.
Answers are lines of JSON: ``{"running": symbol}`` before a first run, which may end the process,
``{"running": ""}`` after all of them, then the results, ``{"milliseconds": {symbol: [...]},
"wrong": {symbol: reason}}``.  End of input ends it.
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

from byoc.tuning.race import GIVEN_UP_MS, OTHER_BYTES, Race, read_arrays
from codegen_cc import dtypes

if TYPE_CHECKING:
    import numpy as np

#: Seconds in which threads fall asleep that a library of its own keeps spinning after a call.
_REST = 0.01


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
    from byoc.deploy.tvm_runtime import start_runtime

    start_runtime(int(threads))
    import tvm_ffi

    module = tvm_ffi.load_module(library)
    for line in sys.stdin:
        request = json.loads(line)
        # The process's own time does not run while another process has the core.
        clock = time.process_time if int(threads) == 1 else time.perf_counter
        race = _LocalRace(module, Path(request["arrays"]), clock)
        result = request["shape"], request["dtype"]
        race.check(request["symbols"], *result, lambda symbol: _say(answers, running=symbol))
        _say(answers, running="")
        milliseconds = race.run(request["rounds"])
        _say(answers, milliseconds=milliseconds, wrong=race.wrong)


def _say(answers: TextIO, **values: object) -> None:
    print(json.dumps(values), file=answers, flush=True)


class _LocalRace(Race):
    """Candidates of a library that this process has loaded."""

    def __init__(self, module: object, arrays: Path, clock: Callable[[], float]) -> None:
        import numpy as np

        inputs, answers = read_arrays(arrays)
        super().__init__(answers)
        self.inputs = [_aligned(array) for array in inputs]
        self.module, self.clock = module, clock
        self.others = np.ones(OTHER_BYTES // 4, np.single)
        self.runs: dict[str, Callable[[], None]] = {}

    def first(self, symbol: str, shape: Sequence[int], dtype: str) -> np.ndarray:
        """Run a candidate, and keep the call."""
        import numpy as np
        import tvm_ffi

        # What a kernel does not write stays NaN, and so differs.
        output = _aligned(np.full(shape, np.nan, dtypes.of(dtype).numpy))
        arguments = [tvm_ffi.from_dlpack(array) for array in (*self.inputs, output)]
        function = self.module[symbol]

        def run() -> None:
            function(*arguments)

        run()
        self.runs[symbol] = run
        return output.copy()

    def turn(self, symbol: str, runs: int) -> list[float]:
        """Time some calls by this process's clock."""
        time.sleep(_REST)
        times: list[float] = []
        while len(times) < runs and not (times and times[-1] > GIVEN_UP_MS):
            self.others.sum()
            for array in self.inputs:
                array.sum()
            begin = self.clock()
            self.runs[symbol]()
            times.append((self.clock() - begin) * 1e3)
        return times


def _aligned(array: np.ndarray) -> np.ndarray:
    from byoc.deploy.input_tensors import aligned_room

    copy = aligned_room(array.shape, array.dtype)
    copy[...] = array
    return copy


if __name__ == "__main__":
    main()
