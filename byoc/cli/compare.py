"""``byoc compare``: which layer of a network loses how much accuracy."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from byoc.cli import control, options
from byoc.cli.process import import_without_torch
from byoc.terminal import new_console, say

if TYPE_CHECKING:
    from byoc.accuracy import Errors
    from byoc.layer_errors.comparison import Comparison, Layer

_PIPE_WIDTH = 200
#: Layers whose errors are drawn as a histogram.
_DRAWN = 3
_BAR = 40


@click.command("compare")
@click.argument("model", type=click.Path(path_type=Path))
@options.input_shapes
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The ONNX file that MODEL was quantised from: the judge is that network then.",
)
@options.inputs
@options.seed
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Print the N nodes that lose most.",
)
@control.rules
@options.as_json
@options.verbose
def compare_verb(
    model: Path,
    input_shapes: dict[str, list[int]] | None,
    reference: Path | None,
    inputs: Path | None,
    seed: int,
    top: int,
    rules: control.Choices,
    as_json: bool,
) -> None:
    """Compare the result of every node of the ONNX file MODEL with ONNX Runtime's.

    "own" is what a node loses by itself, computing on ONNX Runtime's values; "total" what its
    result is off by in the network. Errors are shares of the range of the right result.
    """
    with options.progress() as show:
        show("load TVM")
        import_without_torch("tvm")
        from byoc.layer_errors.compare import compare

        found = compare(
            model,
            inputs,
            input_shapes,
            reference=reference,
            seed=seed,
            allow_wrong=rules.allow_wrong,
            progress=show,
            **rules.partition,
        )
    found.report.require(**rules.demand)
    if as_json:
        say(json.dumps(found.to_json(), indent=1), lines=True)
    else:
        _print(found, top)


def _print(found: Comparison, top: int) -> None:
    from rich import box
    from rich.table import Table

    console = new_console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    worst = found.worst
    most = f", most by {worst[0].name}: {worst[0].own.share:.1e}" if worst else ""
    say(f"outputs are off by {found.error:.1e} of their range{most}")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in ("own", "SNR [dB]", "max", "mean", "total", "SNR [dB]"):
        table.add_column(heading, justify="right")
    for heading in ("node", "operator", "kernel", "computes"):
        table.add_column(heading, overflow="fold")
    for layer in worst[:top]:
        own, total = layer.own, layer.total
        numbers = (f"{own.greatest:.1e}", f"{own.mean:.1e}")
        texts = (layer.name, layer.operator, str(layer.kernel), layer.computes)
        table.add_row(*_share(own), *numbers, *_share(total), *texts)
    for name, errors in found.outputs.items():
        numbers = (f"{errors.greatest:.1e}", f"{errors.mean:.1e}")
        table.add_row("", "", *numbers, *_share(errors), name, "output", "", "")
    console.print(table)
    for layer in worst[:_DRAWN]:
        if layer.own.greatest:
            _draw(layer)
    if len(worst) > top:
        say(f"{len(worst) - top} more nodes lose less; --top shows more")
    if found.unknown:
        many = "1 node gives" if found.unknown == 1 else f"{found.unknown} nodes give"
        say(f"{many} what no ONNX node does; their errors are the next node's")
    say(f"judge: {found.judge}")


def _share(errors: Errors) -> tuple[str, str]:
    return f"{errors.share:.1e}", "equal" if errors.greatest == 0 else f"{errors.snr_db:.1f}"


def _draw(layer: Layer) -> None:
    """A bar for each power of ten that has elements."""
    from byoc.accuracy import BOUNDS

    say(f"{layer.name}: elements by their own error as a share of the range")
    names = [f"up to {bound:.0e}" for bound in BOUNDS] + ["more"]
    filled = [index for index, count in enumerate(layer.histogram) if count]
    most = max(layer.histogram)
    for index in range(filled[0], filled[-1] + 1):
        count = layer.histogram[index]
        bar = "#" * -(-_BAR * count // most)
        say(f"  {names[index]:>11} {count:>10} {bar}")
    say("")
