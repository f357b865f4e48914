"""Files of single operators, timed beside other engines, as tables of their own."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import harness
from byoc.bench.measure import Row
from byoc.bench.networks import bench
from byoc.bench.tables import Sheet, note_lines

ENGINES = ("byoc", "onnxruntime", "openvino")


def show(
    names: Mapping[str, Any],
    options: argparse.Namespace,
    sheet: Callable[[Sequence[Row], int], Sheet],
) -> int:
    """Times the files, the keys of ``names``, and prints what ``sheet`` makes of each thread count.

    ``options`` are of ``harness.parser``; with ``--json`` the rows are printed, and ``names``.
    Returns the exit code.
    """
    found = bench(
        list(names),
        engines=ENGINES,
        threads=options.threads,
        rounds=options.rounds,
        tell=harness.tell,
    )
    if options.json:
        harness.show_json(found.to_json() | {"names": names})
        return int(not found.holds)
    sheets = [sheet(found.results.rows, count) for count in found.threads]
    lines = [f"{options.rounds} turns of each", *note_lines(found.results), *found.checks()]
    harness.show_sheets([found.machine.lines(), *sheets], lines, options.markdown)
    return int(not found.holds)
