"""Models of PyTorch in three compilers' hands: byoc, Inductor, and PyTorch itself.

``python -m benchmarks.pytorch [NETWORK ...] [--threads 1] [--rounds 9] [--precision bf16]``

Each of ``models/pytorch.py``'s networks is compiled by ``torch.compile(backend="byoc")`` and, as it
comes, by ``torch.compile``; these and eager PyTorch take turns on one input in one process, a
process for each network. For bfloat16, byoc has its option ``precision``, and the others run under
``torch.autocast``. The first run of a network compiles, which takes a minute or more; later ones
find both caches.
Exit code 1 where a result is wrong, or byoc slower than Inductor.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from statistics import geometric_mean
from typing import Any

from benchmarks import harness
from byoc.bench.machine import Machine
from byoc.bench.tables import Sheet
from byoc.errors import BenchmarkError, FallbackWarning
from byoc.machine import choose_cores

ENGINES = ("byoc", "Inductor", "eager")
#: Greatest error as a share of a result's range, eager fp32's.
_LIMITS = {"fp32": 1e-4, "bf16": 5e-2}
#: Seconds of a turn.
_TURN = 0.15


@dataclass(frozen=True)
class Row:
    """A network: milliseconds of each run by engine, byoc's parts, and its error."""

    network: str
    parts: str
    error: float
    milliseconds: dict[str, list[float]]
    version: str

    def over(self, engine: str) -> float:
        """The median of byoc's times by that of another engine's."""
        mine, other = (harness.spread(self.milliseconds[e])[1] for e in ("byoc", engine))
        return mine / other


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = harness.parser("pytorch", __doc__, markdown=True, threads=1, rounds=9)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="of models/pytorch.py")
    parser.add_argument("--precision", choices=list(_LIMITS), default="fp32")
    asked = parser.parse_args(arguments)
    try:
        from models.pytorch import ARCHITECTURES, TIMED
    except ImportError as error:
        raise BenchmarkError(f"PyTorch is missing: {error}") from error
    if unknown := [name for name in asked.networks if name not in ARCHITECTURES]:
        raise BenchmarkError(f"no network {unknown[0]!r}; there are {', '.join(ARCHITECTURES)}")
    cores = ",".join(map(str, choose_cores(asked.threads)))
    rows = []
    for name in asked.networks or TIMED:
        print(name, end=" ", flush=True, file=sys.stderr)
        given = (name, asked.threads, asked.rounds, asked.precision, cores)
        found = harness.call_apart("benchmarks.pytorch", *given, more={"threads": asked.threads})
        rows.append(Row(**found))
    print(file=sys.stderr)
    if asked.json:
        harness.show_json([asdict(row) for row in rows])
    else:
        counted = f"{asked.threads} thread{'' if asked.threads == 1 else 's'}"
        sheet = _sheet(rows, f"{asked.precision}, {counted}, batch of 1")
        harness.show_sheets([sheet], _notes(rows, asked.rounds), asked.markdown)
    wrong = any(row.error > _LIMITS[asked.precision] for row in rows)
    return int(wrong or any(row.over("Inductor") > 1 for row in rows))


def _sheet(rows: Sequence[Row], title: str) -> Sheet:
    headings = ["network", *(f"{engine} ms" for engine in ENGINES), "/ Inductor", "/ eager"]
    cells = []
    for row in rows:
        spreads = (harness.spread(row.milliseconds[engine]) for engine in ENGINES)
        times = [" ".join(f"{time:.2f}" for time in spread) for spread in spreads]
        ratios = [f"{row.over(engine):.2f}" for engine in ENGINES[1:]]
        cells.append([row.network, *times, *ratios, f"{row.error:.0e}", row.parts])
    return Sheet(f"{title}: min, p50, p90", [*headings, "error", "parts"], cells)


def _notes(rows: Sequence[Row], rounds: int) -> list[str]:
    means = (
        f"/ {engine} {geometric_mean([row.over(engine) for row in rows]):.2f}"
        for engine in ENGINES[1:]
    )
    return [
        f"geometric means: {', '.join(means)}; {rounds} rounds; PyTorch {rows[0].version}",
        Machine.measure(()).lines()[0],
    ]


# ---------------------------------------------------------------------- a network


def child(name: str, threads: int, rounds: int, precision: str, cores: str) -> dict[str, Any]:
    """Time one network, in a process of its own."""
    import os

    os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    import torch

    from byoc.torch_compile.graphs import collected
    from models.pytorch import ARCHITECTURES

    torch.set_num_threads(threads)
    warnings.simplefilter("ignore", FallbackWarning)
    network, inputs = ARCHITECTURES[name].build()
    options = {"threads": threads, "precision": precision, "verify": False}
    half = precision == "bf16"
    with torch.no_grad():
        wanted = _leaf(network(*inputs))
        calls: dict[str, Callable[[], Any]] = {}
        ours = torch.compile(network, backend="byoc", options=options)
        with collected() as graphs:
            error = _error(_leaf(ours(*inputs)), wanted)
        calls["byoc"] = lambda: ours(*inputs)
        theirs = torch.compile(network)
        calls["Inductor"] = lambda: theirs(*inputs)
        calls["eager"] = lambda: network(*inputs)
        times: dict[str, list[float]] = {engine: [] for engine in ENGINES}
        for number, engine in enumerate((*ENGINES, *harness.in_turns(ENGINES, rounds))):
            cast = torch.autocast("cpu", torch.bfloat16) if half and engine != "byoc" else None
            with cast or nullcontext():
                taken = _turn(calls[engine])
            if number >= len(ENGINES):  # what compiles or warms up does not count
                times[engine].extend(taken)
    parts = [part for graph in graphs for part in graph.parts]
    taken = sum(part.metadata is not None for part in parts)
    return asdict(Row(name, f"{taken} of {len(parts)}", error, times, torch.__version__))


def _turn(call: Callable[[], Any]) -> list[float]:
    """Milliseconds of the runs of a turn."""
    times, end = [], time.perf_counter() + _TURN
    while not times or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def _leaf(result: Any) -> Any:
    """The first tensor of a result."""
    return result if hasattr(result, "numpy") else _leaf(next(iter(result)))


def _error(found: Any, wanted: Any) -> float:
    """The greatest error as a share of what the result ranges over."""
    return float((found - wanted).abs().max() / (wanted.max() - wanted.min()))


if __name__ == "__main__":
    sys.exit(main())
