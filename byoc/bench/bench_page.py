"""A finished benchmark as one page that needs no other file: bars with their spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from byoc.bench.engines import ENGINES
from byoc.bench.measure import OURS, Row
from byoc.bench.networks import Outcome
from byoc.bench.tables import in_words, milliseconds_text, ratio_lines
from byoc.report.html import filled, page_style

#: The scale of a network ends at this multiple of the slowest 90th percentile of ours and peers.
_ROOM = 1.05
#: Settings of one network that the heading names.
_MOST = 4


def bench_page(outcome: Outcome) -> str:
    """The page: a panel for each precision, device and number of threads."""
    settings: dict[tuple[str, str, int], list[Row]] = {}
    for row in outcome.results.rows:
        settings.setdefault((row.precision, row.device, row.threads), []).append(row)
    panels = [
        {"title": _title(*setting), "groups": _groups(rows)} for setting, rows in settings.items()
    ]
    ratios = ratio_lines(outcome.comparisons)
    return filled(
        "bench.html",
        style=page_style(),
        answer=ratios[0] if len(ratios) == 1 else _answer(outcome),
        about=outcome.machine.lines(),
        panels=panels,
        lines=[*outcome.lines(), *outcome.checks()],
    )


def _answer(outcome: Outcome) -> str:
    means = outcome.means
    if means:
        each = (f"{m.ratio:.3f} in {m.precision} with {in_words(m.threads)}" for m in means)
        return f"byoc by the best peer, geometric means: {', '.join(each)}"
    ours = outcome.comparisons
    if len({c.title for c in ours}) == 1 and len(ours) <= _MOST and ours[0].batch is None:
        each = (f"{c.ratio:.2f} in {c.precision} with {in_words(c.threads)}" for c in ours)
        return f"{ours[0].title}: byoc by the best peer: {', '.join(each)}"
    networks = len({row.model for row in outcome.results.rows})
    return f"{networks} network{'' if networks == 1 else 's'} beside other engines"


def _title(precision: str, device: str, threads: int) -> str:
    return f"{precision}, {in_words(threads)}{f', on {device}' if device else ''}"


def _groups(rows: Sequence[Row]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, int | None], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.title, row.batch), []).append(row)
    return [
        {"title": title if batch is None else f"{title}, batch {batch}", "bars": _bars(own)}
        for (title, batch), own in groups.items()
    ]


def _bars(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The bars of one network, in percent of its scale, which plain TVM does not stretch."""
    counted = [row for row in rows if row.engine == OURS or ENGINES[row.engine].peer] or rows
    scale = _ROOM * max(row.p90_ms for row in counted)
    ours = next((row.p50_ms for row in rows if row.engine == OURS), None)
    bars = []
    for row in rows:
        start, end = row.min_ms / scale, row.p90_ms / scale
        bars.append(
            {
                "engine": row.engine,
                "title": ENGINES[row.engine].title,
                "ours": row.engine == OURS,
                "torn": end > 1,
                "width": f"{100 * min(1.0, row.p50_ms / scale):.2f}",
                "from": f"{100 * start:.2f}",
                "spread": f"{100 * (end - start):.2f}",
                "least": milliseconds_text(row.min_ms),
                "p50": milliseconds_text(row.p50_ms),
                "p90": milliseconds_text(row.p90_ms),
                "runs": row.runs,
                "ratio": "" if ours is None else f"{ours / row.p50_ms:.2f}",
            }
        )
    return bars
