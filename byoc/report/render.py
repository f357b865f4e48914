"""Show a report: the answer first, then tables, then at most one hint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from byoc.report.coverage import Coverage, RegionSummary
from byoc.report.kernels import KernelUse
from byoc.report.left import Left
from codegen_cc.dtypes import SINGLE
from codegen_cc.printable import printable

#: Rows of the second table; the rest is one line with their number.
MAX_ROWS = 20

#: Names of nodes that one line lists.
MAX_NAMES = 3

#: Share of multiply-accumulates below which the hint names what holds most of the rest.
GOOD_SHARE = 0.99


def coverage_line(report: Coverage) -> str:
    """Such as ``268 of 270 operators, 100.0 % of MACs, 1 region``."""
    parts = [f"{report.offloaded} of {report.operators} operators"]
    if report.macs:
        # Rounded down, so that 100.0 % means all.
        share = int(1000 * report.offloaded_macs / report.macs) / 10
        parts.append(f"{share:.1f} % of MACs")
    count = len(report.regions)
    parts.append(f"{count} region{'' if count == 1 else 's'}")
    for dtype, macs in report.multiplied_in.items():
        if set(report.multiplied_in) - {SINGLE}:
            parts.append(f"{100 * macs / report.offloaded_macs:.1f} % in {dtype}")
    parts += ["exact"] * report.exact
    return ", ".join(parts)


def render(report: Coverage, console: Console) -> None:
    """Print a report to a rich console."""
    console.print(coverage_line(report), highlight=False)
    if report.regions:
        console.print(_regions(report))
    uses = report.kernels
    reduced = set(report.multiplied_in) - {SINGLE}
    if report.machines or reduced or any(use.library != "builtin" or use.measured for use in uses):
        for machine, own in (report.machines or {"": uses}).items():
            console.print(_kernels(own, f"Kernels on {machine}" if machine else "Kernels"))
        for found in report.libraries:
            line = f"{found.name} {found.version}: {found.linked}"
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    for reason, count in report.kept.items():
        nodes = f"{count} node{'' if count == 1 else 's'}"
        console.print(f"{nodes} not in the precision asked for: {reason}", highlight=False)
    for idle in report.idle:
        console.print(printable(str(idle)), highlight=False, markup=False, soft_wrap=True)
    if report.left:
        console.print(_left(report))
    hint = hint_of(report)
    if hint:
        console.print(f"hint: {hint}", highlight=False, markup=False, soft_wrap=True)


def blockers(left: Sequence[Left]) -> str:
    """Lines that list what stays with TVM, the most work first, one per operator and reason."""
    groups: dict[tuple[str, str], list[Left]] = {}
    for entry in left:
        groups.setdefault((entry.op, entry.reason), []).append(entry)
    ordered = sorted(groups.items(), key=lambda item: -sum(entry.macs for entry in item[1]))
    lines = []
    for (op, reason), entries in ordered[:MAX_ROWS]:
        lines.append(f"\n  {len(entries)} x {op}: {printable(reason)} ({names_of(entries)})")
    if len(ordered) > MAX_ROWS:
        lines.append(f"\n  and {len(ordered) - MAX_ROWS} more kinds")
    return "".join(lines)


def _regions(report: Coverage) -> Table:
    table = Table(title="Regions", title_justify="left", box=None, pad_edge=False)
    table.add_column("region", no_wrap=True)
    titles = ["operators", "MACs [M]", "in [KiB]", "out [KiB]", "weights [MiB]"]
    if any(region.plan for region in report.regions):
        titles += ["arena [MiB]", "calls", "copies", "inside"]
    for title in titles:
        table.add_column(title, justify="right")
    for region in report.regions:
        table.add_row(
            region.name,
            str(region.operators),
            f"{region.macs / 1e6:.1f}",
            f"{region.bytes_in / 1024:.1f}",
            f"{region.bytes_out / 1024:.1f}",
            f"{region.weight_bytes / 2**20:.2f}",
            *_plan_cells(region),
        )
    return table


def _plan_cells(region: RegionSummary) -> list[str]:
    """Arena, kernel calls, copies, and copies of other than inputs and outputs."""
    if region.plan is None:
        return []
    plan = region.plan
    counts = (plan.calls, plan.copies, plan.copies_inside)
    return [f"{plan.arena_bytes / 2**20:.2f}", *map(str, counts)]


def _kernels(uses: Sequence[KernelUse], title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("library", no_wrap=True)
    table.add_column("algorithm", overflow="fold")
    table.add_column("nodes", justify="right")
    table.add_column("MACs [M]", justify="right")
    if any(use.measured for use in uses):
        table.add_column("measured", justify="right")
    for use in uses:
        cells = [use.library, Text(use.algorithm), str(use.nodes), f"{use.macs / 1e6:.1f}"]
        table.add_row(*cells, *([str(use.measured)] if len(table.columns) > len(cells) else []))
    return table


def _left(report: Coverage) -> Table:
    table = Table(title="Left to TVM", title_justify="left", box=None, pad_edge=False)
    table.add_column("count", justify="right")
    table.add_column("operator", overflow="fold")
    table.add_column("nodes", overflow="fold")
    table.add_column("shapes", overflow="fold")
    table.add_column("reason", overflow="fold")
    groups = grouped(report.left)
    for (op, shapes, reason), entries in groups[:MAX_ROWS]:
        cells = (str(len(entries)), op, names_of(entries), shapes, printable(reason))
        # As text, or rich would take the brackets of shapes and names for its markup.
        table.add_row(*map(Text, cells))
    rest = sum(len(entries) for _, entries in groups[MAX_ROWS:])
    if rest:
        table.add_row(str(rest), "others", "", "", f"{len(groups) - MAX_ROWS} more kinds")
    return table


def grouped(left: Sequence[Left]) -> list[tuple[tuple[str, str, str], list[Left]]]:
    """Entries of the same operator, shapes and reason together, the largest group first."""
    groups: dict[tuple[str, str, str], list[Left]] = {}
    for entry in left:
        groups.setdefault((entry.op, entry.shapes, entry.reason), []).append(entry)
    return sorted(groups.items(), key=lambda item: -len(item[1]))


def names_of(entries: Sequence[Left], limit: int = MAX_NAMES) -> str:
    """Names of the first few entries on one line, and how many more there are."""
    names = ", ".join(printable(entry.name) for entry in entries[:limit])
    more = len(entries) - limit
    return f"{names} and {more} more" if more > 0 else names


def hint_of(report: Coverage) -> str | None:
    """The one thing that would help most, or None."""
    if not report.operators:
        return "the module calls no operator in a Relax function"
    if report.macs and report.offloaded_macs < GOOD_SHARE * report.macs:
        most = max(report.left, key=lambda entry: entry.macs)
        share = 100 * most.macs / report.macs
        what = f"{most.op} {printable(most.name)}"
        return f"{what} holds {share:.1f} % of MACs: {printable(most.reason)}"
    if len(report.regions) > 1 and report.left:
        (op, reason), count = Counter((e.op, e.reason) for e in report.left).most_common(1)[0]
        return f"{count} x {op} ({printable(reason)}) may be what splits the network"
    lower = report.next_threshold
    if lower is not None:
        what = f"{lower.operators} operator{'' if lower.operators == 1 else 's'}"
        option = f"--min-bytes {lower.bytes} (min_bytes in Python)"
        return f"{option} would add {what} in regions too small to gain by it"
    return None
