"""Benchmark networks: what ``byoc bench`` and the demo call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from byoc.bench.comparison import Comparison, Mean, compare_rows, means
from byoc.bench.engines import ENGINES
from byoc.bench.machine import Machine, choose_cores, usable_cores
from byoc.bench.measure import Bench, Failure, Progress, Results, present
from byoc.bench.subjects import Subject, load_subject
from byoc.bench.suite import SUITES, Suite
from byoc.bench.tables import (
    Sheet,
    batch_sheet,
    check_lines,
    engines_sheet,
    growth_lines,
    note_lines,
    ratio_lines,
    suite_sheet,
)
from byoc.errors import ByocError

if TYPE_CHECKING:
    from byoc.control import Libraries

ROUNDS = 8

Shapes = Mapping[str, Sequence[int | str]]


def _silent(text: str) -> None:
    del text


@dataclass(frozen=True)
class Outcome:
    """A finished benchmark: the machine, what was asked for, and the results."""

    machine: Machine
    threads: Sequence[int]
    rounds: int
    suite: str | None
    results: Results

    @property
    def holds(self) -> bool:
        """Whether ours ran wherever it was asked to, and answered as ONNX Runtime does."""
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
        """One table for a suite, else for each network, one for each number of threads."""
        if self.suite is not None:
            return [suite_sheet(f"suite {self.suite}, batch 1, p50", self.comparisons, self.means)]
        rows = self.results.rows
        if any(row.batch for row in rows):
            return [batch_sheet(rows)]
        settings = dict.fromkeys((row.model, row.threads) for row in rows)
        return [
            engines_sheet([row for row in rows if (row.model, row.threads) == setting])
            for setting in settings
        ]

    def lines(self) -> list[str]:
        """What the tables say in words, and what they do not say."""
        rows = self.results.rows
        lines = []
        if self.suite is None:
            batches = any(row.batch for row in rows)
            lines = growth_lines(rows) if batches else ratio_lines(self.comparisons)
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
    libraries: Libraries = None,
    progress: Progress = _silent,
    tell: Callable[[str], None] = _silent,
) -> Outcome:
    """Time networks through several engines, which take turns.

    ``models`` are ONNX files or names of the zoo; ``suite`` is a key of ``SUITES`` instead.
    ``engines`` are keys of ``ENGINES`` (default: all; for a suite and for batches all but plain
    TVM).  ``threads`` are numbers of threads (default: 1 and 2, as far as there are cores).
    ``batches`` are extents for axis 0 of every input.  ``progress`` is called with what is being
    done, ``tell`` with a line for each of several networks that is done.

    Raises ``ByocError`` where nothing can be measured; what an engine cannot do is in the results.
    """
    counts = sorted(set(threads)) or [n for n in (1, 2) if n <= len(usable_cores())]
    choose_cores(counts[-1])
    quick = [name for name in ENGINES if name != "tvm"]
    names, absent = present(engines or (quick if suite or batches else ENGINES))
    progress("measuring the peak")
    machine = Machine.measure(names)
    results = Results(absent=absent)
    measuring = Bench(names, counts, rounds, machine.peak_gflops, libraries, progress)
    networks = list(SUITES[suite].networks) if suite else list(dict.fromkeys(models))
    sizes = sorted(set(batches)) or [None]
    for subjects in _subjects(networks, suite, sizes, input_shapes, results):
        measured = measuring.measure(subjects)
        results.add(measured)
        for line in ratio_lines(compare_rows(measured.rows)) if len(networks) > 1 else ():
            tell(line)
    return Outcome(machine, counts, rounds, suite, results)


def _subjects(
    names: Sequence[str],
    suite: str | None,
    batches: Sequence[int | None],
    shapes: Shapes | None,
    results: Results,
) -> Iterator[list[Subject]]:
    """Each network, in its batches; a network of a suite that is not there is noted."""
    for name in names:
        try:
            subjects = [load_subject(name, shapes, batch) for batch in batches]
        except ByocError as error:
            if suite is None:
                raise
            results.failures.append(Failure(name, name, None, "", str(error)))
            continue
        yield subjects
