"""``byoc bench``: networks through byoc and other engines, taking turns in one run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from byoc.bench.decoder_engines import DECODERS_ALONE
from byoc.bench.engines import ENGINES
from byoc.bench.precision import PRECISIONS
from byoc.bench.suite import SUITES
from byoc.cli import control, options, progress, remote
from byoc.cli.several import SeveralValues
from byoc.destination import require_file_to_write, write_whole
from byoc.errors import BenchmarkError
from byoc.terminal import say, say_json, table_console

if TYPE_CHECKING:
    from byoc.bench.networks import Outcome
    from byoc.compiler.keywords import CompileKeywords
    from byoc.partition.rules import Libraries
    from byoc.rpc.devices import Devices

_DIFFERENT = 1

#: Keywords of ``bench_generate`` that are numbers of tokens.
_LENGTHS = ("prompts", "pasts")

#: Options that --generate reads.
_OF_GENERATE = (
    *("models", "generate", "engines", "threads", "rounds", "precisions", *_LENGTHS),
    *("large_pages", "markdown", "as_json", "quiet", "verbose"),
)


class _Precision(click.Choice):
    """A precision, or an exception such as ``softmax=fp32``, which compiling judges."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text as it is."""
        return value if "=" in str(value) else super().convert(value, param, ctx)


@click.command("bench", cls=SeveralValues)
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option(
    "--suite",
    type=click.Choice(list(SUITES)),
    help="Measure these networks, and compare with their targets.",
)
@click.option(
    "--engines",
    multiple=True,
    type=click.Choice([*ENGINES, *DECODERS_ALONE]),
    metavar="NAME...",
    help=f"Any of {', '.join(ENGINES)} (default: all; for a suite and for batches all but tvm, "
    f"which takes seconds for a run); with --generate also {', '.join(DECODERS_ALONE)}.",
)
@click.option(
    "--threads",
    multiple=True,
    type=options.thread_count,
    metavar="N...",
    help="Threads of every engine, on as many cores (default: 1 2, where there are two).",
)
@options.count("--rounds", "Turns of each engine, of about 0.4 s.", default=8)
@options.count(
    "--batch batches",
    "Measure one model with these extents of axis 0 of every input.",
    multiple=True,
    metavar="N...",
)
@options.flag(
    "--generate",
    "Measure prompts and single steps of one decoder with a cache, which our library keeps: "
    "inputs are input_ids, attention_mask, position_ids, and past_key_values.* with present.*.",
)
@options.count(
    "--prompt prompts",
    "With --generate: tokens of prompts (default: 128).",
    multiple=True,
    metavar="N...",
)
@options.count(
    "--past pasts",
    "With --generate: tokens before a step (default: 128 1024).",
    multiple=True,
    metavar="N...",
)
@options.flag(
    "--large-pages",
    "With --generate: move weights that our steps read to large pages, as Model.enlarge_weights.",
)
@options.input_shapes
@options.fixed_inputs
@options.words(
    "--library libraries",
    "NAMES",
    "Kernel libraries that byoc asks, as for `byoc compile`; repeatable.",
)
@control.tuning_db
@control.tuning_machine
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    type=_Precision(list(PRECISIONS)),
    metavar="NAME...",
    help=f"Any of {', '.join(PRECISIONS)} (default: fp32): each is measured beside the engines "
    "that compute in it, bf16x3 and int8-data beside those in fp32; for int8, a network of the zoo "
    "is the one quantised from it. With bf16 or bf16x3, softmax=fp32 or 'head/*=fp32' makes "
    "exceptions of ours, as for `byoc compile`.",
)
@control.exact
@control.allow_wrong
@remote.devices(several=True)
@options.target
@options.file(
    "--plot plot_file", "FILE", "Draw the ratios to the best peer into this .svg or .png file."
)
@options.file("--html", "FILE", "Write a page: bars beside the peers, with their spread.")
@options.flag("--markdown", "Print the tables as Markdown.")
@options.as_json
@options.quiet
@options.verbose
def bench_verb(
    models: tuple[str, ...],
    suite: str | None,
    threads: tuple[int, ...],
    batches: tuple[int, ...],
    input_shapes: dict[str, list[int | str]] | None,
    fixed_inputs: dict[str, bool | int | float],
    libraries: tuple[str, ...],
    tuning_db: Path | None,
    tuning_machine: str,
    precisions: tuple[str, ...],
    exact: bool,
    allow_wrong: tuple[str, ...],
    devices: Devices | None,
    target: str | None,
    plot_file: Path | None,
    html: Path | None,
    markdown: bool,
    as_json: bool,
    **others: Any,
) -> int:
    """Time MODEL, an ONNX or .pt2 file or a network of the zoo, through byoc and other engines.

    Each engine sits in a process of its own, limited to the asked number of cores, and they take
    turns.  Answers are compared with ONNX Runtime's, or PyTorch's: exit code 1 where byoc's differ
    by more than 1e-4 of the range (4e-2 in bf16, 0.1 in int8, 5e-3 for networks of float16).

    With --rpc or --rpc-tracker other machines measure, byoc and plain TVM alone: several networks
    are shared out among them, and a single one is measured on each.
    """
    lengths = _lengths(others)
    if others.pop("generate"):
        return _generate(models, threads, precisions, lengths, markdown, as_json, **others)
    del others["large_pages"]
    _check_usage(models, suite, batches, input_shapes, markdown and as_json, others["engines"])
    remote.require_for_target(devices, target)
    _check_files(models, plot_file, html, devices)
    precisions, exceptions = _exceptions(precisions)
    with progress.stages() as show:
        show("load TVM")
        from byoc.bench.networks import bench

        chosen = _libraries(libraries, tuning_db, tuning_machine, threads, exact)
        compiling: CompileKeywords = {"libraries": chosen, "allow_wrong": allow_wrong}
        compiling |= {"target": target, "precision": exceptions}
        outcome = bench(
            models,
            suite=suite,
            threads=threads,
            batches=batches,
            input_shapes=input_shapes,
            fixed_inputs=fixed_inputs,
            compiling=compiling,
            precisions=precisions,
            devices=devices,
            progress=show,
            tell=lambda line: say(line, err=True),
            **others,
        )
    return _told(outcome, markdown, as_json, plot_file, html)


def _told(
    outcome: Outcome, markdown: bool, as_json: bool, plot_file: Path | None, html: Path | None
) -> int:
    """Print and write what was asked for; returns the exit code."""
    _print(outcome, markdown, as_json)
    _write_files(outcome, plot_file, html)
    return _checked(outcome)


def _lengths(given: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Take the numbers of tokens out of what is given; all that needs --generate is checked."""
    lengths = {name: numbers for name in _LENGTHS if (numbers := given.pop(name))}
    if lengths and not given["generate"]:
        raise click.UsageError("--prompt and --past need --generate")
    if given["large_pages"] and not given["generate"]:
        raise click.UsageError("--large-pages needs --generate")
    return lengths


def _check_generate(models: Sequence[str]) -> None:
    """Refuse what prompts and steps are not measured with."""
    if len(models) != 1:
        raise click.UsageError("--generate needs one MODEL, a decoder with a cache")
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
        if given and option.name not in _OF_GENERATE:
            raise click.UsageError(f"--generate does not go with {option.opts[0]}")


def _generate(
    models: Sequence[str],
    threads: tuple[int, ...],
    precisions: tuple[str, ...],
    lengths: dict[str, tuple[int, ...]],
    markdown: bool,
    as_json: bool,
    **others: Any,
) -> int:
    """Measure a decoder in each precision, and print it."""
    _check_generate(models)
    with progress.stages() as show:
        show("load TVM")
        from byoc.bench.generate import bench_generate

        given = {"threads": threads, "progress": show, **lengths, **others}
        found = [
            bench_generate(models[0], precision=precision, **given)
            for precision in precisions or ("fp32",)
        ]
    if as_json:
        say_json([part.to_json() for part in found])
    for sheet in () if as_json else (sheet for part in found for sheet in part.sheets()):
        if markdown:
            say(f"\n{sheet.markdown()}\n", lines=True)
        else:
            table_console(highlight=False).print(sheet.rich())
    for line in (line for part in found for line in (*part.lines(), *part.checks())):
        say(line, err=True)
    return _DIFFERENT if any(part.checks() for part in found) else 0


def _write_files(outcome: Outcome, plot_file: Path | None, html: Path | None) -> None:
    from byoc.bench.bench_page import bench_page
    from byoc.bench.plot import plot

    if plot_file is not None:
        caption = "\n".join(outcome.machine.lines())
        plot(plot_file, outcome.results.rows, outcome.comparisons, caption)
    if html is not None:
        write_whole(html, bench_page(outcome), BenchmarkError)


def _libraries(
    names: tuple[str, ...],
    tuning_db: Path | None,
    machine: str,
    threads: tuple[int, ...],
    exact: bool,
) -> Libraries:
    """The kernel libraries of ours, and the times that decide among them."""
    from byoc.tuning.choice import select, timed

    if tuning_db is None:
        if machine:
            raise click.UsageError("--tuning-machine needs --tuning-db")
        return select(names or None, exact=True) if exact else names or None
    # One file serves all numbers of threads; the first one's times decide.
    first = threads[0] if threads else 1
    return timed(select(names or None, exact=exact), tuning_db, first, machine)


def _exceptions(given: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The precisions to measure, and what is to be computed in another one."""
    whole = tuple(text for text in given if "=" not in text)
    exceptions = tuple(text for text in given if "=" in text)
    if exceptions and not {"bf16", "bf16x3"}.intersection(whole):
        raise click.UsageError(
            f"--precision {exceptions[0]} is an exception; need bf16 or bf16x3 besides"
        )
    return whole, exceptions


def _check_files(
    models: tuple[str, ...], file: Path | None, html: Path | None, devices: Devices | None
) -> None:
    """Refuse a drawing that cannot be made, and what cannot be written."""
    from byoc.bench.plot import check_plot

    if html is not None:
        require_file_to_write(html, BenchmarkError, filter(None, (*models, file)))
    if file is None:
        return
    if devices is not None:
        raise click.UsageError("--plot needs other engines, and devices can measure none of them")
    check_plot(file)


def _checked(outcome: Outcome) -> int:
    """The exit code, and why it is not 0."""
    for line in outcome.checks():
        say(line, err=True)
    return 0 if outcome.holds else _DIFFERENT


def _check_usage(
    models: Sequence[str],
    suite: str | None,
    batches: Sequence[int],
    shapes: dict[str, list[int | str]] | None,
    two_forms: bool,
    engines: Sequence[str],
) -> None:
    """Refuse combinations that make no sense."""
    if alone := [name for name in engines if name in DECODERS_ALONE]:
        raise click.UsageError(f"--engines {alone[0]} needs --generate")
    if two_forms:
        raise click.UsageError("--json and --markdown are two forms of one table; give one")
    if suite is not None and models:
        raise click.UsageError(f"give --suite {suite} or models, not both")
    if suite is None and not models:
        raise click.UsageError("need a MODEL or --suite")
    if (suite is not None or len(models) > 1) and (batches or shapes):
        raise click.UsageError("--batch and --input-shapes are for one model")
    for name, shape in (shapes or {}).items():
        if names := [extent for extent in shape if isinstance(extent, str)]:
            raise click.UsageError(f"--input-shapes: {name!r} has {names[0]}; a run needs numbers")


def _print(outcome: Outcome, markdown: bool, as_json: bool) -> None:
    if as_json:
        say_json(outcome.to_json())
        return
    console = table_console(highlight=False)
    for line in outcome.machine.lines():
        say(line)
    for sheet in outcome.sheets():
        if markdown:
            say(f"\n{sheet.markdown()}\n", lines=True)
        else:
            console.print(sheet.rich())
    for line in outcome.lines():
        say(line)
