"""One engine in one process: ``python -m byoc.bench.worker ENGINE FILE IN.npz OUT.npz THREADS``.

Runs the model once, writes its outputs to OUT.npz and prints ``ready``; then, for every line with
a number of runs on stdin, prints their milliseconds as a JSON list.  End of input ends it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from byoc.bench.engines import ENGINES


def main() -> None:
    """Serve bursts of runs until stdin ends."""
    engine, model, inputs, outputs, threads = sys.argv[1:]
    # Measured as it is deployed: TVM's runtime, no compiler in the process.
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    with np.load(inputs) as file:
        arrays = {name: file[name] for name in file.files}
    run, fetch = ENGINES[engine][0](Path(model), arrays, int(threads))
    np.savez(outputs, *fetch())
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            run()
            times.append((time.perf_counter() - begin) * 1e3)
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
