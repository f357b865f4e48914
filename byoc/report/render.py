"""Show a report: the answer first, then tables, then at most one hint."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from .report import Report

#: Rows of the second table; the rest is one line with their number.
MAX_ROWS = 20

#: Share of multiply-accumulates below which the hint names what holds most of the rest.
GOOD_SHARE = 0.99


def coverage_line(report: Report) -> str:
    """Such as ``268 of 270 operators, 100.0 % of MACs, 1 region``."""
    parts = [f"{report.offloaded} of {report.operators} operators"]
    if report.macs:
        # Rounded down, so that 100.0 % means all.
        share = int(1000 * report.offloaded_macs / report.macs) / 10
        parts.append(f"{share:.1f} % of MACs")
    count = len(report.regions)
    parts.append(f"{count} region{'' if count == 1 else 's'}")
    return ", ".join(parts)


def render(report: Report, console: Console) -> None:
    """Print a report to a rich console."""
    console.print(coverage_line(report), highlight=False)
    if report.regions:
        console.print(_regions(report))
    if report.left:
        console.print(_left(report))
    hint = hint_of(report)
    if hint:
        console.print(f"hint: {hint}", highlight=False, soft_wrap=True)


def _regions(report: Report) -> Table:
    table = Table(title="Regions", title_justify="left", box=None, pad_edge=False)
    table.add_column("region", no_wrap=True)
    for title in ("operators", "MACs [M]", "in [KiB]", "out [KiB]", "weights [MiB]"):
        table.add_column(title, justify="right")
    for region in report.regions:
        table.add_row(
            region.name,
            str(region.operators),
            f"{region.macs / 1e6:.1f}",
            f"{region.bytes_in / 1024:.1f}",
            f"{region.bytes_out / 1024:.1f}",
            f"{region.weight_bytes / 2**20:.2f}",
        )
    return table


def _left(report: Report) -> Table:
    table = Table(title="Left to TVM", title_justify="left", box=None, pad_edge=False)
    table.add_column("count", justify="right")
    table.add_column("operator", overflow="fold")
    table.add_column("shapes", overflow="fold")
    table.add_column("reason", overflow="fold")
    groups = Counter((entry.op, entry.shapes, entry.reason) for entry in report.left)
    ordered = groups.most_common()
    for (op, shapes, reason), count in ordered[:MAX_ROWS]:
        table.add_row(str(count), op, _plain(shapes), _plain(reason))
    rest = sum(count for _, count in ordered[MAX_ROWS:])
    if rest:
        table.add_row(str(rest), "others", "", f"{len(ordered) - MAX_ROWS} more kinds")
    return table


def _plain(text: str) -> str:
    """Keep rich from reading shapes in brackets as markup."""
    return text.replace("[", r"\[")


def hint_of(report: Report) -> str | None:
    """The one thing that would help most, or None."""
    if not report.operators:
        return "the module calls no operator in a Relax function"
    if report.macs and report.offloaded_macs < GOOD_SHARE * report.macs:
        most = max(report.left, key=lambda entry: entry.macs)
        share = 100 * most.macs / report.macs
        return f"{most.op} {most.name} holds {share:.1f} % of MACs: {most.reason}"
    if len(report.regions) > 1 and report.left:
        (op, reason), count = Counter((e.op, e.reason) for e in report.left).most_common(1)[0]
        return f"{count} x {op} ({reason}) may be what splits the network"
    return None
