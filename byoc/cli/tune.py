"""``byoc tune``: time what can compute each layer of a network, and store who is fastest."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from byoc.cli import control, options, progress, remote
from byoc.cli.process import import_without_torch
from byoc.cli.several import SeveralValues
from byoc.terminal import say, say_json, table_console

if TYPE_CHECKING:
    from byoc.rpc.devices import Devices
    from byoc.tuning.tuner import Choice, Tuned

_FAILED = 1
#: Share of the cores that may be at work before that is worth a warning.
_BUSY = 0.6


@click.command("tune", cls=SeveralValues)
@click.argument("model")
@options.file(
    "--db",
    "FILE.json",
    "The database to add to (default: byoc/tuning.json in $XDG_CACHE_HOME, else ~/.cache).",
)
@click.option(
    "--threads",
    multiple=True,
    type=options.thread_count,
    default=(1,),
    show_default="1",
    metavar="N...",
    help="Numbers of threads to time with; each has times of its own.",
)
@options.words(
    "--library libraries",
    "NAMES",
    "Kernel libraries to try, as for `byoc compile` (default: all that are present); repeatable.",
)
@options.input_shapes
@options.fixed_inputs
@options.count("--rounds", "Turns of each candidate, of four runs.", default=6)
@options.flag("--again", "Time what the database has already, too.")
@control.exact
@control.precision
@control.allow_wrong
@remote.devices(several=True)
@options.target
@options.as_json
@options.quiet
@options.verbose
def tune_verb(
    model: str,
    db: Path | None,
    libraries: tuple[str, ...],
    devices: Devices | None,
    target: str | None,
    as_json: bool,
    **others: Any,
) -> int:
    """Time the candidates of each distinct layer of MODEL, an ONNX file or a network of the zoo.

    Candidates are the algorithms of every kernel library. They are checked against ONNX Runtime and
    the built-in kernels first; exit code 1 where one answers wrong, which then never wins. `byoc
    compile --tuning-db FILE` uses what is stored.

    With --rpc or --rpc-tracker the candidates are compiled here and timed on other machines, all of
    one kind.
    """
    remote.require_for_target(devices, target)
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if devices is None and load > _BUSY * cores:
        note = "what is timed meanwhile may be off, most of all with several threads"
        say(f"warning: the machine is busy (load {load:.1f} of {cores}): {note}", err=True)
    with progress.bar() as show:
        show("loading TVM", 0, 1)
        import_without_torch("tvm")
        from byoc.compiler.tune import tune
        from byoc.tuning.tuner import to_json
        from byoc.zoo import build, networks

        in_zoo = model in networks() and not Path(model).is_file()
        tuned = tune(
            build(model) if in_zoo else model,
            db,
            libraries=libraries or None,
            devices=devices,
            target=target,
            progress=show,
            **others,
        )
    if as_json:
        say_json(to_json(tuned))
    else:
        _print(tuned)
    return _FAILED if any(choice.failed for choice in tuned.choices) else 0


def _print(tuned: Tuned) -> None:
    console = table_console(highlight=False)
    for threads, machine in tuned.machines.items():
        choices = [choice for choice in tuned.choices if choice.threads == threads]
        better = sum(choice.decision is not None and choice.decision.gain > 0 for choice in choices)
        untuned, best = tuned.totals(threads)
        known = sum(choice.known for choice in choices)
        say(
            f"{better} of {len(choices)} kinds of layers are computed faster than untuned: "
            f"{untuned:.3f} -> {best:.3f} ms for all of them in the network"
            f" ({known} known already); {machine}"
        )
        if choices:
            console.print(_table(choices))
    for choice in tuned.choices:
        for (library, algorithm), reason in choice.failed.items():
            say(f"failed: {library}: {algorithm}: {choice.layer.label}: {reason}", err=True)
    reasons: dict[str, int] = {}
    for layer in tuned.skipped:
        reasons[layer.skipped] = reasons.get(layer.skipped, 0) + 1
    for reason, count in reasons.items():
        say(f"not timed, {count} kinds of layers: {reason}")
    for reason in tuned.lost:
        say(f"went on without a device: {reason}", err=True)
    for reason in tuned.absent.values():
        say(f"not tried: {reason}")
    use = f"byoc compile MODEL --tuning-db {shlex.quote(str(tuned.path))}{_whose(tuned)}"
    say(f"stored in {tuned.path}; use it: {use}")


def _whose(tuned: Tuned) -> str:
    """The option that names another machine than this one."""
    from byoc.tuning.database import machine_key

    threads, machine = next(iter(tuned.machines.items()))
    if machine == machine_key(threads):
        return ""
    return f" --tuning-machine {shlex.quote(machine.rpartition(', ')[0])}"


def _table(choices: list[Choice]) -> object:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("layer", overflow="fold")
    table.add_column("count", justify="right")
    table.add_column("untuned")
    table.add_column("ms", justify="right")
    table.add_column("fastest")
    table.add_column("ms", justify="right")
    table.add_column("gain", justify="right")
    for choice in choices:
        cells = [Text(choice.layer.label), str(choice.layer.count)]
        for pair in (choice.layer.untuned, choice.decision and choice.decision.winner):
            time = choice.milliseconds(pair) if pair else None
            cells += [Text(": ".join(pair or ("nothing",))), f"{time:.3f}" if time else "-"]
        gain = choice.decision.gain if choice.decision else 0.0
        table.add_row(*cells, f"{100 * gain:.0f} %" if gain else "")
    return table
