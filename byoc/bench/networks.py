"""Benchmark networks: what ``byoc bench`` and the demo call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from byoc.bench.comparison import Comparison, Mean, compare_rows, means
from byoc.bench.engines import ENGINES
from byoc.bench.machine import Machine
from byoc.bench.measure import Bench, Failure, Progress, Results, Row, present
from byoc.bench.precision import FP32, PRECISIONS
from byoc.bench.remote import REMOTE_ENGINES, RemoteBench, RemoteMachines, require_remote
from byoc.bench.subjects import Subject, kind_of, load_subject
from byoc.bench.suite import SUITES, Suite
from byoc.bench.tables import (
    Sheet,
    batch_sheet,
    check_lines,
    engines_sheet,
    growth_lines,
    note_lines,
    ratio_lines,
    row_line,
    suite_sheet,
)
from byoc.errors import BenchmarkError, ByocError
from byoc.frontends.onnx.fixed_inputs import FixedInputs
from byoc.machine import choose_cores, usable_cores

if TYPE_CHECKING:
    from byoc.compiler.keywords import CompileKeywords
    from byoc.rpc.devices import Devices

ROUNDS = 8

Shapes = Mapping[str, Sequence[int | str]]


def _silent(text: str) -> None:
    del text


@dataclass(frozen=True)
class Outcome:
    """A finished benchmark: the machine, what was asked for, and the results."""

    machine: Machine | RemoteMachines
    threads: Sequence[int]
    rounds: int
    suite: str | None
    results: Results
    precisions: Sequence[str] = (FP32,)

    @property
    def holds(self) -> bool:
        """Whether ours ran wherever it was asked to, and answered as the reference does."""
        return self.results.holds

    @property
    def comparisons(self) -> list[Comparison]:
        """Ours beside the best peer, for each network, batch and number of threads."""
        return compare_rows(self.results.rows, self._suite)

    @property
    def means(self) -> list[Mean]:
        """Geometric means over a suite."""
        return means(self.comparisons, self._suite) if self.suite else []

    def sheets(self) -> list[Sheet]:
        """One table for a suite, else for each network, one for each number of threads.

        What devices measured has no peers to compare with, hence a table for each network.
        """
        rows = self.results.rows
        if self.suite is not None and not any(row.device for row in rows):
            return [self._suite_sheet(precision) for precision in self.precisions]
        batches = any(row.batch for row in rows)
        settings: dict[tuple[object, ...], list[Row]] = {}
        for row in rows:
            kind = () if batches else (row.model, row.threads)
            settings.setdefault((row.precision, row.device, *kind), []).append(row)
        return [(batch_sheet if batches else engines_sheet)(own) for own in settings.values()]

    def _suite_sheet(self, precision: str) -> Sheet:
        title = f"suite {self.suite}, {precision}, batch 1, p50"
        own = [c for c in self.comparisons if c.precision == precision]
        return suite_sheet(title, own, [m for m in self.means if m.precision == precision])

    def lines(self) -> list[str]:
        """What the tables say in words, and what they do not say."""
        rows = self.results.rows
        lines = []
        if self.suite is None:
            batches = any(row.batch for row in rows)
            here = not any(row.device for row in rows)
            lines = growth_lines(rows) if batches and here else ratio_lines(self.comparisons)
        return [*lines, *note_lines(self.results)]

    def checks(self) -> list[str]:
        """What did not hold."""
        return check_lines(self.results)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts, for ``json.dumps``."""
        return {
            "machine": self.machine.to_json(),
            "threads": list(self.threads),
            "rounds": self.rounds,
            "precisions": list(self.precisions),
            "suite": self.suite,
            **self.results.to_json(),
            "comparisons": [comparison.to_json() for comparison in self.comparisons],
            "geometric_means": [mean.to_json() for mean in self.means],
        }

    @property
    def _suite(self) -> Suite | None:
        return SUITES[self.suite] if self.suite else None


def bench(
    models: Sequence[str] = (),
    *,
    suite: str | None = None,
    engines: Sequence[str] = (),
    threads: Sequence[int] = (),
    rounds: int = ROUNDS,
    batches: Sequence[int] = (),
    input_shapes: Shapes | None = None,
    fixed_inputs: FixedInputs | None = None,
    compiling: CompileKeywords | None = None,
    precisions: Sequence[str] = (),
    devices: Devices | None = None,
    progress: Progress = _silent,
    tell: Callable[[str], None] = _silent,
) -> Outcome:
    """Time networks through several engines, which take turns.

    ``models`` are ONNX files, .pt2 files or names of the zoo; ``suite`` is a key of ``SUITES``
    instead.
    ``engines`` are keys of ``ENGINES`` (default: all; for a suite and for batches all but plain
    TVM).  ``threads`` are numbers of threads (default: 1 and 2, as far as there are cores).
    ``batches`` are extents for axis 0 of every input.  ``fixed_inputs`` are constants for every
    engine.  ``compiling`` are keywords of
    ``byoc.compile`` for ours; ``target`` and ``allow_wrong`` hold for plain TVM too.
    ``precisions`` are keys of ``PRECISIONS`` (default: fp32), each of which is compared with the
    engines that compute in it; for int8 the zoo's networks are those quantised from it.  With
    ``devices`` ours and plain TVM are measured there (``byoc.bench.remote``).  ``progress`` is
    called with what is being done, ``tell`` with a line for each of several networks that is done.

    Raises ``ByocError`` where nothing can be measured; what an engine cannot do is in the results.
    """
    networks = list(SUITES[suite].networks) if suite else list(dict.fromkeys(models))
    sizes = sorted(set(batches)) or [None]
    load = partial(_load, suite=suite, batches=sizes, shapes=input_shapes, fixed=fixed_inputs or {})
    if devices is not None:
        if [name for name in precisions if name != FP32]:
            raise BenchmarkError("devices measure fp32 alone; leave --precision out")
        asked = engines or (("byoc",) if suite or batches else REMOTE_ENGINES)
        require_remote(asked)
        names, absent = present(asked)
        counts = sorted(set(threads))
        measuring = Bench(names, counts, rounds, None, compiling, progress)
        remote = RemoteBench(measuring, devices, counts)
        return _bench_remotely(networks, load, suite, remote, Results(absent=absent), tell)
    counts = sorted(set(threads)) or [n for n in (1, 2) if n <= len(usable_cores())]
    choose_cores(counts[-1])
    names, absent = present(_fitting(engines, networks, quick=bool(suite or batches)))
    progress("measuring the peak")
    machine = Machine.measure(names)
    results = Results(absent=absent)
    peak = machine.peak_gflops
    wanted = tuple(dict.fromkeys(precisions)) or (FP32,)
    for precision in wanted:
        own = partial(load, quantised=PRECISIONS[precision].quantised)
        measuring = Bench(names, counts, rounds, peak, compiling, progress, precision)
        _bench_here(networks, own, measuring, results, tell)
    _require_any(results)
    return Outcome(machine, counts, rounds, suite, results, wanted)


def _fitting(asked: Sequence[str], networks: Sequence[str], quick: bool) -> list[str]:
    """The engines that measure some of the networks; all, or all but plain TVM where it is to be
    ``quick``, unless some are asked for. Raises ``BenchmarkError`` for one of these that does not.
    """
    kinds = {kind_of(name) for name in networks}
    found = [name for name in asked or ENGINES if kinds.intersection(ENGINES[name].models)]
    for name in asked:
        if name not in found:
            runs = " and ".join(ENGINES[name].models)
            raise BenchmarkError(
                f"{ENGINES[name].title} runs models of {runs} alone; leave it out of --engines"
            )
    return found if asked or not quick else [name for name in found if name != "tvm"]


def _require_any(results: Results) -> None:
    """Raise ``BenchmarkError`` where not one network of a suite was there."""
    absent = bool(results.failures) and not any(failure.engine for failure in results.failures)
    if absent and not results.rows:
        raise BenchmarkError(f"no network could be measured: {results.failures[0].reason}")


def _bench_here(
    networks: Sequence[str],
    load: Callable[[str, Results], list[Subject] | None],
    measuring: Bench,
    results: Results,
    tell: Callable[[str], None],
) -> None:
    """``bench`` on this machine, in one precision."""
    for name in networks:
        subjects = load(name, results)
        if subjects is None:
            continue
        measured = measuring.measure(subjects)
        results.add(measured)
        for line in ratio_lines(compare_rows(measured.rows)) if len(networks) > 1 else ():
            tell(line)


def _bench_remotely(
    networks: Sequence[str],
    load: Callable[[str, Results], list[Subject] | None],
    suite: str | None,
    remote: RemoteBench,
    results: Results,
    tell: Callable[[str], None],
) -> Outcome:
    """``bench`` on devices."""
    bench = remote.bench

    def said(found: Results) -> None:
        for row in found.rows if len(networks) > 1 or len(remote.devices) > 1 else ():
            tell(row_line(row))

    bench.progress(f"measuring on {remote.devices}")
    results.add(remote.measure([partial(load, name, results) for name in networks], said))
    versions = {ENGINES[name].title: ENGINES[name].version() for name in bench.engines}
    counts = bench.threads or sorted({row.threads for row in results.rows})
    _require_any(results)
    machines = RemoteMachines(remote.found, versions)
    return Outcome(machines, counts, bench.rounds, suite, results)


def _load(
    name: str,
    results: Results,
    suite: str | None,
    batches: Sequence[int | None],
    shapes: Shapes | None,
    fixed: FixedInputs,
    quantised: bool = False,
) -> list[Subject] | None:
    """A network in its batches; None, and a note, for one of a suite that is not there."""
    try:
        return [load_subject(name, shapes, batch, quantised, fixed) for batch in batches]
    except ByocError as error:
        if suite is None:
            raise
        results.failures.append(Failure(name, name, None, "", str(error)))
        return None
