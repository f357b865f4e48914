"""One engine in a fresh process, which ``command`` starts.

Prints what loading and the first runs took as one JSON object: ``loaded_at`` in seconds of the
system's clock, ``runtime_ms`` for the engine's own libraries, ``load_ms`` for the model,
``first_ms``, ``later_ms`` (a list), ``peak_mb``, the most memory that the process had, and
``mapped``, its shared libraries.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from byoc.bench.engines import ENGINES
from byoc.bench.machine import peak_mb


def command(engine: str, model: Path, inputs: Path, threads: int, runs: int) -> list[str]:
    """Load a model, run it once on the arrays of an npz file, and so many times more."""
    script = "from benchmarks.first_run import main; main()"
    files = [str(model), str(inputs)]
    return [sys.executable, "-c", script, engine, *files, str(threads), str(runs)]


def main() -> None:
    """Load, run, print."""
    engine, model, inputs, threads, runs = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # engines print
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    sys.modules["torch"] = None  # type: ignore[assignment]  # as in byoc.bench.worker
    with np.load(inputs) as file:
        arrays = {name: file[name] for name in file.files}
    times = [time.perf_counter()]
    _load_engine(engine)
    times.append(time.perf_counter())
    run, _ = ENGINES[engine].load(Path(model), arrays, int(threads))
    times.append(time.perf_counter())
    loaded_at = time.time()
    for _ in range(1 + int(runs)):
        run()
        times.append(time.perf_counter())
    runtime, load, first, *later = (1e3 * float(step) for step in np.diff(times))
    found = {"runtime_ms": runtime, "load_ms": load, "first_ms": first, "later_ms": later}
    answer = {"loaded_at": loaded_at, **found, "peak_mb": peak_mb(), "mapped": _mapped()}
    print(json.dumps(answer), file=answers, flush=True)


def _mapped() -> list[str]:
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return sorted({line.split(maxsplit=5)[5] for line in lines if ".so" in line})


def _load_engine(engine: str) -> None:
    """What a process does once, however many models it loads."""
    if engine == "byoc":
        importlib.import_module("byoc.deploy.loader")
        from byoc.deploy.tvm_runtime import load_runtime

        load_runtime()
    else:
        importlib.import_module(next(iter(ENGINES[engine].packages)))


if __name__ == "__main__":
    main()
