"""One engine in one process: ``python -m byoc.bench.worker ENGINE FILE IN OUT THREADS CORES
PRECISION``.

Takes its inputs from IN.npz, runs the model once on CORES (such as ``0,1``), writes its outputs to
OUT.npz and prints ``ready``, or one line that begins with ``error:``; then, for every line with a
number of runs on stdin, prints their milliseconds as a JSON list.  End of input ends it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from byoc.array_files import stored_arrays
from byoc.bench.engines import ENGINES

if TYPE_CHECKING:
    from byoc.bench.engines import Run


def main() -> None:
    """Serve bursts of runs until stdin ends."""
    engine, model, inputs, outputs, threads, cores, precision = sys.argv[1:]
    # An interrupted benchmark closes stdin; a traceback of each engine would say no more.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Before a library starts its threads, which inherit this: none uses more than was asked for.
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    # Engines print; what they print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Measured as it is deployed: TVM's runtime, no compiler in the process.
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    if "torch" not in ENGINES[engine].packages:
        # TVM's FFI imports PyTorch where it is installed: 200 MB that other engines do not need.
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        files = Path(model), Path(inputs), Path(outputs)
        run = start(engine, *files, int(threads), precision)
    except Exception as error:
        text = str(error).strip() or type(error).__name__
        print(f"error: {text.splitlines()[0]}", file=answers, flush=True)
        return
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            run()
            times.append((time.perf_counter() - begin) * 1e3)
        print(json.dumps(times), file=answers, flush=True)


def start(
    engine: str, model: Path, inputs: Path, outputs: Path, threads: int, precision: str
) -> Run:
    """Load a model, run it once and store what it answered."""
    import numpy as np

    run, fetch = ENGINES[engine].load(model, stored_arrays(inputs), threads, precision)
    np.savez(outputs, *fetch())
    return run


if __name__ == "__main__":
    main()
