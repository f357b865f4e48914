"""``byoc profile``: how long each kernel call of a network takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from byoc.cli import control, options, progress
from byoc.destination import require_file_to_write, write_whole
from byoc.errors import BenchmarkError
from byoc.terminal import say, say_json, table_console

if TYPE_CHECKING:
    from byoc.bench.profile import Profile
    from byoc.compiler.keywords import CompileKeywords


@click.command("profile")
@click.argument("model")
@options.input_shapes
@options.fixed_inputs
@click.option("--threads", type=options.thread_count, default=1, show_default=True, metavar="N")
@options.count("--runs", "Runs to take the medians of.", default=30)
@options.count("--top", "Only the N slowest calls (default: all, in the order in which they run).")
@options.words(
    "--library libraries", "NAMES", "Kernel libraries, as for `byoc compile`; repeatable."
)
@control.tuning_db
@control.exact
@control.precision
@control.allow_wrong
@options.file("--html", "FILE", "Write a page: the network by time, roofline, timeline.")
@options.file("--trace", "FILE.json", "Write a timeline for Perfetto or chrome://tracing.")
@options.as_json
@options.quiet
@options.verbose
def profile_verb(
    model: str,
    input_shapes: dict[str, list[int]] | None,
    fixed_inputs: dict[str, bool | int | float],
    threads: int,
    runs: int,
    top: int | None,
    libraries: tuple[str, ...],
    tuning_db: Path | None,
    exact: bool,
    precision: tuple[str, ...],
    allow_wrong: tuple[str, ...],
    html: Path | None,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Time every kernel call of MODEL, an ONNX or .pt2 file or a network of the zoo.

    The clock is read inside the compiled library, around each call; medians over all runs.
    """
    if html is not None:
        require_file_to_write(html, BenchmarkError, filter(None, (model, trace)))
    if trace is not None:
        require_file_to_write(trace, BenchmarkError, [model])
    with progress.stages() as show:
        show("load TVM")
        from byoc.bench.profile import profile
        from byoc.bench.subjects import load_subject
        from byoc.tuning.choice import select, timed

        subject = load_subject(model, input_shapes, fixed_inputs=fixed_inputs)
        selection = timed(select(libraries or None, exact=exact), tuning_db, threads)
        compiling: CompileKeywords = {"libraries": selection, "allow_wrong": allow_wrong}
        compiling["precision"] = precision
        found = profile(subject, threads, runs, compiling, show, with_roofs=html is not None)
    _write(found, html, trace)
    if (html or trace) and found.timeline.lost:
        say(f"warning: the timeline is cut off: {found.timeline.lost}", err=True)
    if as_json:
        say_json(found.to_json(), indent=1)
    else:
        _print(found, top)


def _write(found: Profile, html: Path | None, trace: Path | None) -> None:
    from byoc.bench.profile_page import profile_page, trace_text

    if html is not None:
        write_whole(html, profile_page(found), BenchmarkError)
    if trace is not None:
        write_whole(trace, trace_text(found), BenchmarkError)


def _print(found: Profile, top: int | None) -> None:
    from rich import box
    from rich.table import Table

    from byoc.bench.tables import in_words

    console = table_console(200)
    total = found.whole_ms
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in ("ms", "%", "GFLOP/s", "GB/s"):
        table.add_column(heading, justify="right")
    table.add_column("call", overflow="ellipsis", no_wrap=True)
    calls = list(found.calls)
    if top is not None:
        calls = sorted(calls, key=lambda call: -call.milliseconds)[:top]
    for call in calls:
        table.add_row(
            f"{call.milliseconds:.3f}",
            f"{100 * call.milliseconds / total:.1f}",
            f"{call.gflops:.1f}" if call.macs else "",
            f"{call.gbytes:.1f}" if call.bytes else "",
            call.name,
        )
    console.print(table)
    kernels = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    kernels.add_column("kernel")
    for heading in ("calls", "ms", "%", "GFLOP/s"):
        kernels.add_column(heading, justify="right")
    for name, count, milliseconds, macs in found.by_kernel():
        rate = f"{2e-6 * macs / milliseconds:.1f}" if macs and milliseconds else ""
        share = f"{100 * milliseconds / total:.1f}"
        kernels.add_row(name, str(count), f"{milliseconds:.3f}", share, rate)
    share = f"{100 * found.outside_ms / total:.1f}"
    kernels.add_row("(outside of kernels)", "", f"{found.outside_ms:.3f}", share, "")
    console.print(kernels)
    threads = in_words(found.threads)
    console.print(f"{found.title}: {total:.3f} ms, median of {found.runs} runs, {threads}")
