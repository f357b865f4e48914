"""The results for terminals, as a page of Markdown, and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from benchmarks import harness
from benchmarks.layers.algorithms import ALGORITHMS
from benchmarks.layers.engines import Engine, Region, versions
from benchmarks.layers.measure import TOLERANCE, TURNS, Cell, Row, Run

#: What the rows of each operator are called together.
_KINDS = {"conv2d": "convolutions", "matmul": "products"}
_HEADINGS = ("layer", "with", "count", "GFLOP")
_NOTHING = "-"

_TIMED = (
    "Timed is the layer as it is inside a network: with its bias, residual and activation, from"
    " images in memory to an image in memory, weights packed before. Images are channels-last,"
    " [N, H, W, C], for all but those that are said to take NCHW; nobody reorders them, unless that"
    " is said. Each cell is the fastest run in milliseconds, and its share of the peak of"
    " multiply-adds by the operations of the definition, those on padding included: what needs"
    " fewer can be above 100 %. Input and weights are warm from the run before."
)


@dataclass(frozen=True)
class Total:
    """All layers of one operator, with their counts; milliseconds by engine where it has all."""

    kind: str
    count: int
    gflop: float
    milliseconds: dict[str, float]
    best_ms: float | None


def totals(run: Run) -> list[Total]:
    """One for each operator; ``best_ms`` takes the fastest engine of each layer."""
    found = []
    for op, kind in _KINDS.items():
        rows = [row for row in run.rows if row.layer.node.op == op]
        if not rows:
            continue
        milliseconds = {
            engine.name: sum(row.layer.count * row.cells[engine.name].min_ms for row in rows)
            for engine in run.engines
            if all(row.cells[engine.name].runs for row in rows)
        }
        bests = [_best(row, run.engines) for row in rows]
        found.append(
            Total(
                kind,
                sum(row.layer.count for row in rows),
                sum(row.layer.count * row.layer.gflop for row in rows),
                milliseconds,
                sum(
                    row.layer.count * row.cells[best].min_ms
                    for row, best in zip(rows, bests, strict=True)
                )
                if all(bests)
                else None,
            )
        )
    return found


def tables(run: Run) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, headings and rows of each table; the best engine of a row is in asterisks.

    One of all layers with the engines, one of the layers where ``builtin`` chooses an algorithm.
    """
    plain = [engine for engine in run.engines if engine.name not in ALGORITHMS]
    forced = [engine for engine in run.engines if engine.name in ALGORITHMS]
    found = []
    if plain:
        cells = [_line(run, row, plain) for row in run.rows]
        cells += [_total_line(run, total, plain) for total in totals(run)]
        found.append(
            (f"All layers of {run.network.title}", [*_HEADINGS, *(e.title for e in plain)], cells)
        )
    rows = [row for row in run.rows if any(row.cells[engine.name].runs for engine in forced)]
    if rows:
        chosen = [row.cells["builtin"].algorithm if "builtin" in row.cells else "" for row in rows]
        titles = [_algorithm_title(engine, rows) for engine in forced]
        cells = [
            [*_line(run, row, forced), name or _NOTHING]
            for row, name in zip(rows, chosen, strict=True)
        ]
        title = "builtin, by algorithm"
        found.append((title, [*_HEADINGS, *titles, "builtin chose"], cells))
    return found


def terminal(run: Run) -> Iterator[Table | str]:
    """What to print, in order."""
    yield from heading(run)
    for title, headings, rows in tables(run):
        marked = (
            [re.sub(r"\*\*(.*)\*\*", r"[bold]\1[/bold] *", cell) for cell in row] for row in rows
        )
        yield harness.table(title, headings, marked, left=2)
    yield "* marks the fastest. Fastest run in milliseconds, and share of the peak."
    yield from notes(run)


def heading(run: Run) -> list[str]:
    """The machine, threads and versions."""
    threads = f"{run.threads} thread{'' if run.threads == 1 else 's'}"
    first, _ = run.machine.lines()
    texts = [f"{title} {version}" for title, version in versions(run.engines).items()]
    return [first, f"fp32, {threads}; {', '.join(texts)}"]


def notes(run: Run) -> Iterator[str]:
    """What is absent, what was not computed and why, what is left out."""
    for name, reason in run.absent.items():
        yield f"{name} is absent: {reason}"
    refused: dict[tuple[str, str], int] = {}
    for row in run.rows:
        for name, cell in row.cells.items():
            if cell.reason and not cell.failed and name not in ALGORITHMS:
                refused[name, cell.reason] = refused.get((name, cell.reason), 0) + 1
    for (name, reason), count in refused.items():
        yield f"{name} does not compute {count} of the layers: {reason}"
    for name in (engine.name for engine in run.engines):
        copied = sum(1 for row in run.rows if row.cells[name].copies)
        if copied:
            yield f"{name} copies images into another layout in {copied} of the layers; it is timed"
    for failure in run.failures:
        yield f"failed: {failure}"
    for total in totals(run):
        if total.best_ms is not None:
            yield (
                f"the fastest of each layer, all {total.kind} with counts ({total.count}): "
                f"{total.best_ms:.3f} ms{_share(run, total.gflop, total.best_ms)}"
            )
    if run.network.others:
        others = ", ".join(f"{count} {op}" for op, count in run.network.others.items())
        yield f"not among the layers: {others}"


def markdown(run: Run, command: str) -> str:
    """A page of its own, which names the command that wrote it."""
    lines = [
        f"# Every layer of {run.network.title}, each way to its kernel",
        "",
        f"<!-- Written by `{command}`; do not edit. -->",
        "",
        f"`{command}` printed this page. Every distinct convolution and matrix product of the"
        " network, with its count, is compiled alone for each engine, checked against ONNX Runtime"
        f" ({TOLERANCE:g} of the range), and timed in interleaved turns, each engine in a process"
        " of its own. The fastest is **bold**.",
        "",
        *(f"{line}." if index else f"{line};" for index, line in enumerate(heading(run))),
    ]
    for title, headings, rows in tables(run):
        lines += ["", f"## {title}", "", _markdown_row(headings)]
        lines.append(_markdown_row("--" if h in _HEADINGS[:2] else "--:" for h in headings))
        lines += [_markdown_row(row) for row in rows]
    lines += ["", "## How to read it", "", _TIMED, ""]
    lines += [
        f"- *{engine.title}*: {engine.meaning}{_algorithms(run, engine)}." for engine in run.engines
    ]
    lines += [
        "",
        f"Each engine has {run.rounds} turns of about {TURNS.burst_ms:.0f} ms; one that needs more"
        f" than {TURNS.slow_ms:.0f} ms for a run, as plain TVM does, makes {TURNS.slow_rounds} runs"
        " in all.",
        "",
        *(f"- {note}" for note in notes(run)),
    ]
    return "\n".join(lines) + "\n"


def to_json(run: Run) -> dict[str, Any]:
    """Everything, as plain numbers and texts."""
    return {
        "model": run.network.title,
        "threads": run.threads,
        "rounds": run.rounds,
        "machine": {**run.machine.to_json(), "versions": versions(run.engines)},
        "engines": [engine.name for engine in run.engines],
        "absent": run.absent,
        "others": dict(run.network.others),
        "layers": [
            {
                "label": row.layer.label,
                "name": row.layer.name,
                "op": row.layer.node.op,
                "shapes": {o.role: list(o.shape) for o in row.layer.node.operands},
                "attrs": row.layer.node.attrs,
                "epilogue": [step.kind for step in row.layer.node.epilogue],
                "count": row.layer.count,
                "gflop": row.layer.gflop,
                "best": _best(row, run.engines),
                "results": {name: _cell_json(run, row, cell) for name, cell in row.cells.items()},
            }
            for row in run.rows
        ],
        "totals": [asdict(total) for total in totals(run)],
        "failures": run.failures,
    }


def _cell_json(run: Run, row: Row, cell: Cell) -> dict[str, Any]:
    if not cell.runs:
        return {"reason": cell.reason, "failed": cell.failed}
    gflops = row.layer.gflop / cell.min_ms * 1e3
    values = asdict(cell)
    del values["reason"], values["failed"]
    return {**values, "gflops": gflops, "share_of_peak": gflops / run.peak}


def _line(run: Run, row: Row, engines: Sequence[Engine]) -> list[str]:
    layer, best = row.layer, _best(row, engines)
    cells = []
    for engine in engines:
        cell = row.cells[engine.name]
        text = "failed" if cell.failed else _NOTHING
        if cell.runs:
            text = f"{cell.min_ms:.3f}{_share(run, layer.gflop, cell.min_ms)}"
        cells.append(f"**{text}**" if engine.name == best else text)
    return [layer.label, layer.epilogue, str(layer.count), f"{layer.gflop:.3g}", *cells]


def _total_line(run: Run, total: Total, engines: Sequence[Engine]) -> list[str]:
    known = {e.name: total.milliseconds[e.name] for e in engines if e.name in total.milliseconds}
    best = min(known, key=known.__getitem__, default=None)
    cells = []
    for engine in engines:
        ms = known.get(engine.name)
        text = _NOTHING if ms is None else f"{ms:.3f}{_share(run, total.gflop, ms)}"
        cells.append(f"**{text}**" if engine.name == best else text)
    return [f"all {total.kind}, with counts", "", str(total.count), f"{total.gflop:.3g}", *cells]


def _share(run: Run, gflop: float, milliseconds: float) -> str:
    return f" ({1e5 * gflop / milliseconds / run.peak:.0f} %)"


def _best(row: Row, engines: Iterable[Engine]) -> str | None:
    """The fastest of these engines, or None where none computed the layer."""
    known = {e.name: row.cells[e.name].min_ms for e in engines if row.cells[e.name].runs}
    return min(known, key=known.__getitem__, default=None)


def _algorithms(run: Run, engine: Engine) -> str:
    """What a library used."""
    names = dict.fromkeys(row.cells[engine.name].algorithm for row in run.rows)
    names.pop("", None)
    return f" ({', '.join(names)})" if isinstance(engine, Region) else ""


def _algorithm_title(engine: Engine, rows: Sequence[Row]) -> str:
    return next((c.algorithm for row in rows if (c := row.cells[engine.name]).runs), engine.title)


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
