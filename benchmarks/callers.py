"""Many threads that call one loaded model: are the answers right, and what is the throughput?

``python -m benchmarks.callers [squeezenet] [--callers 1 2 4 8] [--calls 1000] [--threads 1 2]``

Every call has inputs of its own.  The answers are compared with ONNX Runtime's.  Numbers of
callers take turns, in one process for each number of threads.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import harness
from byoc.accuracy import relative_error
from byoc.bench.machine import Machine
from byoc.bench.subjects import load_subject
from byoc.errors import BenchmarkError
from byoc.frontends.onnx.measured_model import draw_inputs

if TYPE_CHECKING:
    from byoc.deploy.loader import Model

#: Inputs that differ; callers take them in turn, each from another one on.
_DIFFERENT = 32
_TOLERANCE = 1e-4
_ROUNDS = 5


def child(
    library: str, samples: str, threads: int, callers: Sequence[int], calls: int
) -> list[list[float]]:
    """Calls per second for each number of callers, one number per round.

    ``samples`` holds input and output ``j`` of each sample ``i`` as ``input<i>_<j>`` and
    ``output<i>_<j>``.  Raises ``BenchmarkError`` where an answer is wrong.
    """
    from byoc.deploy.loader import load

    model = load(library, threads)
    names = [info.name for info in model.inputs]
    with np.load(samples) as file:
        inputs = [
            {name: file[f"input{i}_{j}"] for j, name in enumerate(names)} for i in range(_DIFFERENT)
        ]
        outputs = [
            [file[f"output{i}_{j}"] for j in range(len(model.outputs))] for i in range(_DIFFERENT)
        ]
    found: dict[int, list[float]] = {count: [] for count in callers}
    for count in callers:  # machines and pools of the callers' threads do not outlive them
        _round(model, inputs, outputs, count, 4)
    share = max(1, calls // _ROUNDS)
    for count in harness.in_turns(callers, _ROUNDS):
        found[count].append(_round(model, inputs, outputs, count, share))
    return list(found.values())


def _round(
    model: Model,
    inputs: list[dict[str, np.ndarray]],
    outputs: list[list[np.ndarray]],
    callers: int,
    calls: int,
) -> float:
    """Calls per second of so many threads with so many calls each."""
    wrong: list[float] = []
    ready = threading.Barrier(callers + 1)

    def call(first: int) -> None:
        room = {info.name: np.empty(info.shape, info.dtype) for info in model.outputs}
        model.run(inputs[0], room)
        ready.wait()
        for number in range(first, first + calls):
            sample = number % _DIFFERENT
            results = list(model.run(inputs[sample], room).values())
            error = relative_error(results, outputs[sample])
            if not error <= _TOLERANCE:
                wrong.append(error)

    workers = [threading.Thread(target=call, args=(7 * i,)) for i in range(callers)]
    for worker in workers:
        worker.start()
    ready.wait()
    begin = time.perf_counter()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - begin
    if wrong:
        raise BenchmarkError(f"{len(wrong)} answers of {callers} callers differ: {max(wrong):.1e}")
    return callers * calls / seconds


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of calls per second; exit code 1 where many callers are slower than one."""
    cores = sorted({1, os.cpu_count() or 1})
    parser = harness.parser("callers", __doc__, threads=cores)
    parser.add_argument("network", nargs="?", default="squeezenet", help="(default squeezenet)")
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 2, 4, 8], metavar="N")
    parser.add_argument("--calls", type=int, default=1000, help="of each caller, in all rounds")
    options = parser.parse_args(arguments)
    counts = list(dict.fromkeys(options.callers))
    machine = Machine.measure(["byoc"])
    rows = []
    with tempfile.TemporaryDirectory(prefix="byoc_") as folder:
        files = _prepare(options.network, Path(folder))
        for threads in options.threads:
            given = (*map(str, files), threads, counts, options.calls)
            rates = list(map(median, harness.call_apart("benchmarks.callers", *given)))
            rows += [
                {"threads": threads, "callers": count, "rate": rate, "of_one": rate / rates[0]}
                for count, rate in zip(counts, rates, strict=True)
            ]
    if options.json:
        harness.show_json({"machine": machine.to_json(), "rows": rows})
    else:
        print("\n".join(machine.lines()))
        print("threads  callers  calls/s p50  of one caller")
        for row in rows:
            print("{threads:>7}  {callers:>7}  {rate:>11.1f}  {of_one:>13.2f}".format(**row))
    return int(any(row["of_one"] < 1 for row in rows))


def _prepare(network: str, folder: Path) -> tuple[Path, Path]:
    """The compiled network, and samples with ONNX Runtime's answers."""
    import onnxruntime

    import byoc

    subject = load_subject(network)
    library = folder / "model.so"
    byoc.compile(subject.model, library)
    session = onnxruntime.InferenceSession(
        subject.model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    arrays = {}
    for i in range(_DIFFERENT):
        given = draw_inputs(subject.model, seed=i)
        for j, array in enumerate(given.values()):
            arrays[f"input{i}_{j}"] = array
        for j, array in enumerate(session.run(None, given)):
            arrays[f"output{i}_{j}"] = array
    samples = folder / "samples.npz"
    np.savez(samples, **arrays)
    return library, samples


if __name__ == "__main__":
    sys.exit(main())
