"""Models of PyTorch in three compilers' hands: byoc, Inductor, and PyTorch itself.

``python -m benchmarks.pytorch --prepare``, then ``python -m benchmarks.pytorch [NETWORK ...]
[--threads 1 2] [--precision fp32 bf16] [--rounds 5] [--write]``

Each of ``models/pytorch.py``'s networks is compiled by ``torch.compile(backend="byoc")`` and, as it
comes, by ``torch.compile``; these and eager PyTorch take turns on one input in one process, a
process for each network and number of threads. For bfloat16, byoc has its option ``precision``, and
the others run under ``torch.autocast``. ``--prepare`` fills both compilers' caches and times
nothing, so that it may run beside other work; it takes half an hour and more, nearly all of it
Inductor's. The other command then takes some fifteen minutes of a quiet machine: processes of one
network load side by side, and are timed one after another.
``--write`` writes the tables of docs/pytorch.md, of all networks.
Exit code 1 where a result is wrong, or byoc slower than Inductor.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks import harness
from byoc.bench.interleave import thread_environment
from byoc.bench.machine import Machine
from byoc.bench.tables import Sheet
from byoc.errors import BenchmarkError, FallbackWarning
from byoc.machine import choose_cores
from codegen_cc.cache import cache_folder

DOCUMENT = Path(__file__).parents[1] / "docs" / "pytorch.md"
_BEGIN = "<!-- Written by `python -m benchmarks.pytorch --write`; do not edit. -->"

ENGINES = ("byoc", "Inductor", "eager")
#: Greatest error as a share of a result's range, eager fp32's.
_LIMITS = {"fp32": 1e-4, "bf16": 5e-2}
#: Seconds of a turn, and of the rest before it, in which waiting threads fall asleep.
_TURN, _REST = 0.12, 0.02


@dataclass(frozen=True)
class Row:
    """A network: milliseconds of each run by engine, byoc's parts, and its error."""

    network: str
    precision: str
    threads: int
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
    parser = harness.parser("pytorch", __doc__, markdown=True, threads=[1, 2], rounds=5)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="of models/pytorch.py")
    parser.add_argument("--precision", nargs="+", choices=list(_LIMITS), default=list(_LIMITS))
    parser.add_argument("--prepare", action="store_true", help="compile alone; time nothing")
    parser.add_argument("--write", action="store_true", help="write the tables of docs/pytorch.md")
    asked = parser.parse_args(arguments)
    try:
        from models.pytorch import ARCHITECTURES, TIMED
    except ImportError as error:
        raise BenchmarkError(f"PyTorch is missing: {error}") from error
    if unknown := [name for name in asked.networks if name not in ARCHITECTURES]:
        raise BenchmarkError(f"no network {unknown[0]!r}; there are {', '.join(ARCHITECTURES)}")
    if asked.write and (asked.networks or asked.prepare):
        parser.error("--write is for times of all networks")
    rounds = 0 if asked.prepare else asked.rounds
    rows: list[Row] = []
    for name in asked.networks or TIMED:
        print(name, end=" ", flush=True, file=sys.stderr)
        rows += _measured(name, asked.threads, rounds, asked.precision)
    print(file=sys.stderr)
    wrong = any(row.error > _LIMITS[row.precision] for row in rows)
    if asked.prepare:
        return int(wrong)
    sheets = [_summary(rows), *(_sheet(alike) for alike in _groups(rows))]
    notes = _notes(rows, asked.rounds)
    if asked.json:
        harness.show_json([asdict(row) for row in rows])
    else:
        harness.show_sheets(sheets, notes, asked.markdown)
    if asked.write:
        harness.write_between(DOCUMENT, _BEGIN, sheets, notes)
    return int(wrong or any(row.over("Inductor") > 1 for row in rows))


def _measured(
    name: str, threads: Sequence[int], rounds: int, precisions: Sequence[str]
) -> list[Row]:
    """A network's rows; where it is timed, in processes that load at the same time."""
    rows: list[Row] = []
    with ExitStack() as stack:
        contests = []
        for count in threads:
            given = (name, count, rounds, precisions, choose_cores(count))
            more = {**thread_environment(count), "TORCHINDUCTOR_CACHE_DIR": _inductors_cache()}
            contest = harness.Apart("benchmarks.pytorch", *given, more=more)
            contests.append(stack.enter_context(contest))
            if not rounds:
                contest.wait()
        for contest in contests:
            contest.wait()
        for contest in contests:
            rows += [Row(**found) for found in contest.go()]
    return rows


def _inductors_cache() -> str:
    """Where Inductor keeps what it compiled; by itself it does so in the system's folder for
    temporary files."""
    return os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(cache_folder() / "inductor")


# ---------------------------------------------------------------------- tables


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of one precision and number of threads each."""
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.precision, row.threads), []).append(row)
    return list(found.values())


def _title(row: Row) -> str:
    return f"{row.precision}, {row.threads} thread{'' if row.threads == 1 else 's'}"


def _summary(rows: Sequence[Row]) -> Sheet:
    cells = []
    for alike in _groups(rows):
        worst = max(alike, key=lambda row: row.over("Inductor"))
        means = (geometric_mean([row.over(e) for row in alike]) for e in ENGINES[1:])
        told = f"{worst.over('Inductor'):.2f} ({worst.network})"
        cells.append([_title(alike[0]), *(f"{mean:.2f}" for mean in means), told])
    headings = ["", "/ Inductor", "/ eager", "greatest / Inductor"]
    return Sheet("byoc's time by others', geometric means", headings, cells)


def _sheet(rows: Sequence[Row]) -> Sheet:
    headings = ["network", *(f"{engine} ms" for engine in ENGINES), "/ Inductor", "/ eager"]
    cells = []
    for row in rows:
        spreads = (harness.spread(row.milliseconds[engine]) for engine in ENGINES)
        times = [" ".join(f"{time:.2f}" for time in spread) for spread in spreads]
        ratios = [f"{row.over(engine):.2f}" for engine in ENGINES[1:]]
        cells.append([row.network, *times, *ratios, f"{row.error:.0e}", row.parts])
    title = f"{_title(rows[0])}, batch of 1: min, p50, p90"
    return Sheet(title, [*headings, "error", "parts"], cells)


def _notes(rows: Sequence[Row], rounds: int) -> list[str]:
    return [
        harness.versions(f"{rounds} rounds", f"PyTorch {rows[0].version}"),
        Machine.measure(()).lines()[0],
    ]


# ---------------------------------------------------------------------- a network


def child(
    name: str, threads: int, rounds: int, precisions: Sequence[str], cores: Sequence[int]
) -> list[dict[str, Any]]:
    """Compile one network, wait to be told, and time it, in a process of its own."""
    import torch

    from models.pytorch import ARCHITECTURES

    torch.set_num_threads(threads)
    warnings.simplefilter("ignore", FallbackWarning)
    network, inputs = ARCHITECTURES[name].build()
    with torch.no_grad():
        wanted = _leaf(network(*inputs))
        contests = [_Contest(network, inputs, wanted, p, threads) for p in precisions]
        harness.wait_to_go()
        for task in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(task), cores)
        found = []
        for precision, contest in zip(precisions, contests, strict=True):
            times = contest.times(rounds)
            told = (name, precision, threads, contest.parts, contest.error)
            found.append(asdict(Row(*told, times, torch.__version__)))
    return found


class _Contest:
    """A network in all engines' hands, in one precision."""

    def __init__(
        self, network: Any, inputs: Sequence[Any], wanted: Any, precision: str, threads: int
    ) -> None:
        import torch

        from byoc.torch_compile.graphs import collected

        self._half = precision == "bf16"
        options = {"threads": threads, "precision": precision, "verify": False}
        ours = torch.compile(network, backend="byoc", options=options)
        theirs = torch.compile(network)
        self._calls: dict[str, Callable[[], Any]] = {
            "byoc": lambda: ours(*inputs),
            "Inductor": lambda: theirs(*inputs),
            "eager": lambda: network(*inputs),
        }
        with collected() as graphs:
            self.error = _error(_leaf(self._calls["byoc"]()), wanted)
        parts = [part for graph in graphs for part in graph.parts]
        taken = sum(part.metadata is not None for part in parts)
        self.parts = f"{taken} of {len(parts)}"
        with self._precision_of("Inductor"):
            self._calls["Inductor"]()

    @contextmanager
    def _precision_of(self, engine: str) -> Iterator[None]:
        """byoc has its precision as an option."""
        import torch

        with torch.autocast("cpu", torch.bfloat16, enabled=self._half and engine != "byoc"):
            yield

    def times(self, rounds: int) -> dict[str, list[float]]:
        """Milliseconds of the runs of each engine, in turns."""
        found: dict[str, list[float]] = {engine: [] for engine in ENGINES}
        for engine in harness.in_turns(ENGINES, rounds):
            with self._precision_of(engine):
                found[engine].extend(turn(self._calls[engine]))
        return found


def turn(call: Callable[[], Any]) -> list[float]:
    """Milliseconds of the runs of a turn, but for the first one, which others' data are in the way
    of, and which casts the weights where PyTorch does."""
    time.sleep(_REST)
    call()
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
