"""Compile and run graphs that nobody wrote, and compare with ONNX Runtime.

``python -m tests.fuzz.run --graphs 200`` prints a table of outcomes and each failure with its seed;
exit code 1 says that there are some. ``--minimise`` makes failures small and prints them as
``regressions.jsonl`` keeps them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from byoc.partition.precision import COMPUTE
from tests.fuzz import regressions
from tests.fuzz.draft import Drawn
from tests.fuzz.minimise import minimise, print_model
from tests.fuzz.sources import SOURCES, draw
from tests.fuzz.trial import (
    CRASH,
    EQUAL,
    FAILURES,
    FULL,
    REFUSED,
    TIMEOUT,
    Outcome,
    limit_memory,
    try_graphs,
)
from tests.workers import Lost, Pool

#: Seconds that a graph may take; several in one model share them.
TIME_LIMIT = 150.0

#: Graphs that one task draws, and compiles together where it can.
GRAPHS_PER_TASK = 5

#: Every so many graphs one is fed with special values.
SPECIAL_EVERY = 8

PRELOAD = ("tests.fuzz.trial", "tests.fuzz.sources", "byoc.frontends.onnx", "codegen_cc", "sympy")


@dataclass(frozen=True)
class Task:
    """Seeds of one source, of ordinary or special values; or graphs that are at hand."""

    source: str = ""
    seeds: tuple[int, ...] = ()
    special: bool = False
    graphs: tuple[Drawn, ...] = ()
    precision: str = FULL


@dataclass
class Found:
    """Outcomes by (source, special, seed), and how often operators occurred in graphs."""

    outcomes: dict[tuple[str, bool, int], Outcome] = field(default_factory=dict)
    operators: Counter[str] = field(default_factory=Counter)

    def failures(self) -> dict[tuple[str, bool, int], Outcome]:
        """What must not be."""
        return {key: o for key, o in self.outcomes.items() if o.kind in FAILURES}


def run_task(task: Task) -> tuple[list[Outcome], Counter[str]]:
    """In a worker: draw the graphs and try them."""
    limit_memory()
    graphs = list(task.graphs) or [draw(task.source, seed, task.special) for seed in task.seeds]
    operators: Counter[str] = Counter()
    for graph in graphs:
        operators.update(set(graph.operators()))
    return try_graphs(graphs, task.precision), operators


def pool() -> Pool[Task]:
    """Processes that run tasks."""
    return Pool(
        run=run_task,
        limit=lambda task: TIME_LIMIT + 30 * len(task.seeds),
        preload=PRELOAD,
        tasks_per_worker=25,
    )


def try_one(graph: Drawn, precision: str = FULL) -> Outcome:
    """The outcome of a graph, in a process of its own."""
    return try_each([graph], precision=precision)[0]


def try_each(graphs: list[Drawn], jobs: int = 1, precision: str = FULL) -> list[Outcome]:
    """The outcome of each graph, whatever that does to the process."""
    outcomes: dict[int, Outcome] = {}

    def finished(task: Task, result: Any) -> list[Task]:
        outcomes[task.seeds[0]] = lost(result) if isinstance(result, Lost) else result[0][0]
        return []

    tasks = [
        Task(seeds=(index,), graphs=(graph,), precision=precision)
        for index, graph in enumerate(graphs)
    ]
    pool().run_tasks(tasks, jobs, finished)
    return [outcomes[index] for index in range(len(graphs))]


def lost(result: Lost) -> Outcome:
    """The outcome of a graph that its process did not survive."""
    return Outcome(TIMEOUT if result.timeout else CRASH, result.text)


def fuzz(
    source: str,
    first: int,
    count: int,
    jobs: int,
    special: bool = False,
    progress: bool = False,
    precision: str = FULL,
) -> Found:
    """Try ``count`` graphs of a source, from a first seed on."""
    found = Found()
    begin, told = time.monotonic(), 0

    def finished(task: Task, result: Any) -> list[Task]:
        nonlocal told
        if isinstance(result, Lost) and len(task.seeds) > 1:  # which one was it?
            return [replace(task, seeds=(seed,)) for seed in task.seeds]
        if isinstance(result, Lost):
            outcomes, operators = [lost(result)], Counter()
        else:
            outcomes, operators = result
        found.operators.update(operators)
        for seed, outcome in zip(task.seeds, outcomes, strict=True):
            found.outcomes[task.source, task.special, seed] = outcome
            if progress and outcome.kind not in (EQUAL, REFUSED):
                print(f"{_title(task, seed)}: {outcome.kind}: {outcome.text}", flush=True)
        done = len(found.outcomes)
        if progress and done - told >= 100:
            told = done
            seconds = time.monotonic() - begin
            print(f"{done} of {count}, {seconds:.0f} s", file=sys.stderr, flush=True)
        return []

    pool().run_tasks(_tasks(source, first, count, special, precision), jobs, finished)
    return found


def _tasks(source: str, first: int, count: int, special: bool, precision: str) -> list[Task]:
    # What rounding makes of special values is no question of right or wrong.
    every = SPECIAL_EVERY if precision == FULL else count + 1
    groups = [
        tuple(range(seed, min(seed + GRAPHS_PER_TASK, first + count)))
        for seed in range(first, first + count, GRAPHS_PER_TASK)
    ]
    return [
        Task(source, seeds, special or number % every == every - 1, precision=precision)
        for number, seeds in enumerate(groups)
    ]


def _title(task: Task, seed: int) -> str:
    return f"{task.source} {seed}{' special' if task.special else ''}"


def table(found: Found) -> str:
    """Outcomes by source and kind of values, as Markdown."""
    kinds = list(
        dict.fromkeys((EQUAL, REFUSED, *FAILURES, *(o.kind for o in found.outcomes.values())))
    )
    lines = [f"| graphs | all | {' | '.join(kinds)} |", "|---" * (len(kinds) + 2) + "|"]
    rows = sorted({(source, special) for source, special, _ in found.outcomes})
    for source, special in rows:
        mine = [o for (s, v, _), o in found.outcomes.items() if (s, v) == (source, special)]
        counts = Counter(o.kind for o in mine)
        title = f"{source}, {'special' if special else 'ordinary'} values"
        cells = " | ".join(str(counts[kind]) for kind in kinds)
        lines.append(f"| {title} | {len(mine)} | {cells} |")
    return "\n".join(lines)


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first one (default: %(default)s)")
    parser.add_argument("--source", choices=SOURCES, action="append", help="default: all")
    parser.add_argument("--special", action="store_true", help="special values in all graphs")
    parser.add_argument(
        "--precision", choices=COMPUTE, default=FULL, help="what it computes in (default: fp32)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--minimise", action="store_true", help="make failures small, print them")
    parser.add_argument("--keep", action="store_true", help="add them to the regressions")
    parser.add_argument("--refused", action="store_true", help="list what was refused as well")
    options = parser.parse_args()
    if options.special and options.precision != FULL:
        parser.error("--special is for fp32")
    begin = time.monotonic()
    found = Found()
    sources = options.source or list(SOURCES)
    for source in sources:
        count = options.graphs // len(sources)
        part = fuzz(
            source, options.seed, count, options.jobs, options.special, True, options.precision
        )
        found.outcomes |= part.outcomes
        found.operators.update(part.operators)
    if options.refused:
        for key, outcome in found.outcomes.items():
            if outcome.kind == REFUSED:
                print(*key, outcome.text)
    print(table(found))
    ours = [o for o in found.outcomes.values() if o.kind == EQUAL]
    print(f"{len(found.operators)} operators; {time.monotonic() - begin:.0f} s;", end=" ")
    print(f"{len(ours)} equal")
    if options.minimise or options.keep:
        attempt = partial(try_one, precision=options.precision)
        for (source, special, seed), outcome in found.failures().items():
            small, how = minimise(draw(source, seed, special), outcome, attempt)
            print(f"\n{source} {seed}: {how.kind}: {how.text}\n{print_model(small)}", flush=True)
            if options.keep:
                regressions.keep(f"{source} {seed}: {how.kind}: {how.text}", small)
    return int(bool(found.failures()))


if __name__ == "__main__":
    sys.exit(main())
