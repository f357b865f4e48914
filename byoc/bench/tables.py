"""The tables of ``byoc bench``, for a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from byoc.bench.comparison import Comparison, Mean
from byoc.bench.engines import ENGINES
from byoc.bench.measure import OURS, Results, Row

#: A time per image that is greater by less than this share is noise, not growth.
_NOISE = 0.02

_ENGINE_HEADINGS = (
    *("engine", "runs", "min ms", "p50 ms", "p90 ms", "p99 ms"),
    *("GFLOP/s", "peak %", "ratio", "MB", "error"),
)


@dataclass(frozen=True)
class Sheet:
    """A table of texts; the first ``left`` columns are words, the others numbers."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1

    def rich(self) -> Group:
        """For a terminal of at least 80 columns."""
        table = Table(box=box.SIMPLE_HEAD, padding=0)
        for index, heading in enumerate(self.headings):
            justify = "left" if index < self.left else "right"
            table.add_column(heading, justify=justify, no_wrap=True)
        for row in self.rows:
            table.add_row(*row)
        return Group("", Text(self.title, style="bold"), table)

    def markdown(self) -> str:
        """A pipe table under its title."""
        rules = ["---" if index < self.left else "--:" for index in range(len(self.headings))]
        lines = [self.headings, rules, *self.rows]
        body = [f"| {' | '.join(cells)} |" for cells in lines]
        return "\n".join([f"**{self.title}**", "", *body])


def engines_sheet(rows: Sequence[Row]) -> Sheet:
    """Every engine on one network with one number of threads; ``ratio`` is our p50 by its p50."""
    ours = next((row.p50_ms for row in rows if row.engine == OURS), None)
    cells = []
    for row in rows:
        cells.append(
            [
                ENGINES[row.engine].title,
                str(row.runs),
                *(milliseconds_text(ms) for ms in (row.min_ms, row.p50_ms, row.p90_ms, row.p99_ms)),
                "" if row.gflops is None else f"{row.gflops:.1f}",
                "" if row.share_of_peak is None else f"{100 * row.share_of_peak:.1f}",
                "" if ours is None else f"{ours / row.p50_ms:.2f}",
                "" if row.peak_mb is None else f"{row.peak_mb:.0f}",
                "" if row.error is None else f"{row.error:.0e}",
            ]
        )
    title = f"{rows[0].title}, {rows[0].precision}, {in_words(rows[0].threads)}{_on(rows[0])}"
    return Sheet(title, _ENGINE_HEADINGS, cells)


def suite_sheet(title: str, comparisons: Sequence[Comparison], mean: Sequence[Mean]) -> Sheet:
    """Ours beside the best peer on every network, and the geometric means."""
    names = ("network", "best peer", "threads", "byoc ms", "peer ms", "ratio", "target")
    cells = [
        [
            c.title,
            ENGINES[c.peer].title,
            str(c.threads),
            milliseconds_text(c.ours_ms),
            milliseconds_text(c.peer_ms),
            *_judged(c.ratio, c.target, c.met),
        ]
        for c in comparisons
    ]
    for m in mean:
        name = f"geometric mean of {m.networks}"
        cells.append([name, "", str(m.threads), "", "", *_judged(m.ratio, m.target, m.met)])
    return Sheet(title, (*names, "met"), cells, left=2)


def batch_sheet(rows: Sequence[Row]) -> Sheet:
    """Median milliseconds per image by batch, a column for each engine."""
    engines = list(dict.fromkeys(row.engine for row in rows))
    times = {(row.threads, row.batch, row.engine): row.p50_ms for row in rows}
    cells = []
    for threads, batch in sorted({(row.threads, row.batch or 1) for row in rows}):
        found = (times.get((threads, batch, engine)) for engine in engines)
        per_image = ("" if ms is None else milliseconds_text(ms / batch) for ms in found)
        cells.append([str(threads), str(batch), *per_image])
    titles = (f"{ENGINES[engine].title} ms" for engine in engines)
    title = f"{rows[0].title}{_on(rows[0])}: p50 per image"
    return Sheet(title, ("threads", "batch", *titles), cells, left=0)


def growth_lines(rows: Sequence[Row]) -> list[str]:
    """Whether our time per image grows from a batch to the next greater one."""
    lines = []
    for threads in sorted({row.threads for row in rows}):
        ours = sorted(
            (row.batch or 1, row.p50_ms / (row.batch or 1))
            for row in rows
            if row.engine == OURS and row.threads == threads
        )
        grown = [
            f"{after / before:.2f} x from batch {small} to {large}"
            for (small, before), (large, after) in pairwise(ours)
            if after > (1 + _NOISE) * before
        ]
        if len(ours) > 1:
            said = f"grows {', '.join(grown)}" if grown else "never grows"
            lines.append(f"{in_words(threads)}: byoc's time per image {said}")
    return lines


def ratio_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """Our ratio to the best peer, in words."""
    return [
        f"{c.title}, {c.precision}, {in_words(c.threads)}: byoc takes {c.ratio:.2f} x the time of "
        f"the best peer, {ENGINES[c.peer].title}"
        for c in comparisons
    ]


def row_line(row: Row) -> str:
    """An engine's median time, in words."""
    what = f"{row.title}, {in_words(row.threads)}{_on(row)}"
    return f"{what}: {ENGINES[row.engine].title} takes {milliseconds_text(row.p50_ms)} ms"


def note_lines(results: Results) -> list[str]:
    """What is missing in the tables, and whose answers differ."""
    lines = [f"not compared: {ENGINES[name].title}: {why}" for name, why in results.absent.items()]
    lines += [f"not measured: {failure}" for failure in results.failures]
    lines += [f"note: {_differs(row)}" for row in results.wrong(ours=False)]
    lines += [f"note: no product of {title}: {why}" for title, why in results.kept.items()]
    for name in dict.fromkeys(row.reference for row in results.rows if row.error is None):
        title = ENGINES[name].title
        lines.append(f"note: answers without an error were not compared: {title} gave none")
    return lines


def check_lines(results: Results) -> list[str]:
    """What did not hold."""
    absent = [f"check failed: {f.title} was not measured" for f in results.failures if not f.engine]
    return absent + [f"check failed: {_differs(row)}" for row in results.wrong(ours=True)]


def _differs(row: Row) -> str:
    what = f"{row.title} in {row.precision} with {in_words(row.threads)}{_on(row)}"
    return (
        f"{ENGINES[row.engine].title} on {what} differs from {ENGINES[row.reference].title} by"
        f" {row.error:.1e} of the range; the limit is {row.limit:.0e}"
    )


def _on(row: Row) -> str:
    return f", on {row.device}" if row.device else ""


def _judged(ratio: float, target: float | None, met: bool | None) -> list[str]:
    words = {True: "yes", False: "no", None: ""}
    return [f"{ratio:.3f}", "" if target is None else f"{target:.2f}", words[met]]


def in_words(count: int) -> str:
    """A number of threads, such as ``2 threads``."""
    return f"{count} thread{'' if count == 1 else 's'}"


def milliseconds_text(milliseconds: float) -> str:
    """A time in milliseconds, with fewer decimals the greater it is."""
    decimals = 0 if milliseconds >= 1000 else 1 if milliseconds >= 100 else 2
    return f"{milliseconds:.{decimals}f}" if milliseconds >= 1 else f"{milliseconds:.3f}"
