"""One loaded model, many threads, no copies: ``python many_threads.py MODEL.so THREADS CALLS``.

Each thread gives the model arrays of its own, for inputs and for results, and uses them again for
every call: nothing is allocated or copied.  Prints calls per second.
"""

import sys
import threading
import time

import numpy as np

import byoc

library, callers, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
model = byoc.load(library)


def serve(seed: int) -> None:
    """What a thread of a server does."""
    draw = np.random.default_rng(seed)
    inputs = {info.name: np.empty(info.shape, info.dtype) for info in model.inputs}
    outputs = {info.name: np.empty(info.shape, info.dtype) for info in model.outputs}
    for _ in range(calls):
        for array in inputs.values():
            array[...] = draw.standard_normal(array.shape, np.float32)
        model.run(inputs, outputs)


threads = [threading.Thread(target=serve, args=(seed,)) for seed in range(callers)]
begin = time.perf_counter()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"{callers * calls / (time.perf_counter() - begin):.1f} calls per second")
