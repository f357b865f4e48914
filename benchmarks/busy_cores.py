"""Times of networks on several threads while other processes keep the same cores busy.

``python -m benchmarks.busy_cores [mobilenet_v2 squeezenet] [--busy 0 1 2] [--json]``

A launch of work on several threads is over when the last of its parts is. Where another process
has a core, a thread waits for milliseconds there, and a network of 50 launches waits 50 times,
unless those that run do its parts. Busy processes count, on any of the cores that the engines have.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks import harness
from byoc.accuracy import TOLERANCES, relative_error
from byoc.bench.builds import build
from byoc.bench.engines import ENGINES
from byoc.bench.interleave import Entrant, Timing, take_turns
from byoc.bench.machine import Machine
from byoc.bench.subjects import load_subject
from byoc.bench.tables import Sheet
from byoc.errors import BenchmarkError
from byoc.frontends.onnx.measured_model import save_model
from byoc.machine import choose_cores

_OURS, *_PEERS = _RACERS = ("byoc", "onnxruntime", "openvino")
_SPIN = "while True: pass"


@contextmanager
def _busy(count: int, cores: Sequence[int]) -> Iterator[None]:
    """So many processes that compute on some of these cores until the context ends."""
    command = [*harness.on_cores(cores), sys.executable, "-c", _SPIN]
    others = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _race(network: str, busy: Sequence[int], threads: int, rounds: int) -> dict[int, list[Timing]]:
    """Times of all engines by the number of busy processes."""
    subject = load_subject(network)
    found = {}
    with tempfile.TemporaryDirectory(prefix="byoc_") as name:
        folder = Path(name)
        source, inputs = folder / "model.onnx", folder / "inputs.npz"
        save_model(subject.model, source)
        np.savez(inputs, **subject.inputs)
        present = [engine for engine in _RACERS if ENGINES[engine].absent() is None]
        entrants = [
            Entrant(engine, engine, build(engine, subject, source, {}).file, inputs)
            for engine in present
        ]
        for count in busy:
            harness.tell(f"{network} beside {count} processes")
            with _busy(count, choose_cores(threads)):
                found[count] = take_turns(entrants, threads, rounds, folder)
            _compare(network, found[count])
    return found


def _compare(network: str, timings: Sequence[Timing]) -> None:
    """Raise ``BenchmarkError`` where an engine answers otherwise than the first one."""
    first, *others = timings
    for other in others:
        error = relative_error(first.outputs, other.outputs)
        if error > TOLERANCES["float32"]:
            both = f"{first.title} and {other.title}"
            raise BenchmarkError(f"{network}: {both} are {error:.1g} apart")


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; exit code 1 where we are slower than the best peer at the median."""
    parser = harness.parser("busy_cores", __doc__, markdown=True, threads=2, rounds=5)
    parser.add_argument("networks", nargs="*", default=["mobilenet_v2", "squeezenet"])
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    options = parser.parse_args(arguments)
    machine = Machine.measure(list(_RACERS))
    rows, slower = [], False
    for network in options.networks:
        found = _race(network, options.busy, options.threads, options.rounds)
        for count, timings in found.items():
            times = {timing.engine: harness.spread(timing.milliseconds) for timing in timings}
            best = min((times[peer][1] for peer in _PEERS if peer in times), default=np.inf)
            ratio = times[_OURS][1] / best
            slower |= ratio > 1
            rows.append({"network": network, "busy": count, "ratio": ratio, "times": times})
    if options.json:
        harness.show_json({"machine": machine.to_json(), "rows": rows})
        return int(slower)
    sheet = Sheet(
        f"Beside busy processes, {options.threads} threads, fp32: min, p50, p90 in ms",
        ("network", "busy processes", *_RACERS, "byoc / best peer"),
        [
            (
                row["network"],
                str(row["busy"]),
                *(" ".join(f"{t:.2f}" for t in row["times"].get(racer, ())) for racer in _RACERS),
                f"{row['ratio']:.2f}",
            )
            for row in rows
        ],
    )
    harness.show_sheets([sheet], machine.lines(), options.markdown)
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
