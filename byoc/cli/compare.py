"""``byoc compare``: which layer of a network loses how much accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from byoc.cli import control, options, progress
from byoc.cli.process import import_without_torch
from byoc.cli.verify import WRONG
from byoc.destination import require_file_to_write, write_whole
from byoc.errors import VerifyError
from byoc.terminal import say, say_json, table_console

if TYPE_CHECKING:
    from byoc.accuracy import Errors
    from byoc.layer_errors.comparison import Comparison
    from byoc.layer_errors.keep import Kept
    from byoc.layer_errors.layer import Layer

#: Layers whose errors are drawn as a histogram.
_DRAWN = 3
_BAR = 40
#: What is left to do where fp32 itself is not exact enough.
WAYS = "--exact takes no Winograd, --skip-node leaves nodes to TVM"


@click.command("compare")
@click.argument("model", type=options.PATH)
@options.input_shapes
@options.file(
    "--reference",
    "FILE",
    "The ONNX file that MODEL was quantised from: the judge is that network then.",
)
@options.inputs
@options.seed
@options.count("--top", "Print the N nodes that lose most.", default=20)
@options.share(
    "--max-error",
    "Say which nodes to keep in fp32, or in the built-in library, so that no output is off by "
    "more than this share of its range. Each choice is compiled and run; exit code 1 where none "
    "is enough.",
)
@control.rules
@options.as_json
@options.file(
    "--html",
    "FILE",
    "Write a page that shows the network with nodes in the colours of their errors.",
)
@options.quiet
@options.verbose
def compare_verb(
    model: Path, top: int, rules: control.Choices, as_json: bool, html: Path | None, **others: Any
) -> int:
    """Compare the result of every node of MODEL, an ONNX or .pt2 file, with the judge's.

    The judge is ONNX Runtime, or PyTorch. "own" is what a node loses by itself, computing on the
    judge's values; "total" what its result is off by in the network. Errors are shares of the range
    of the right result.
    """
    if html is not None:
        require_file_to_write(html, VerifyError, [model])
    with progress.stages() as show:
        show("load TVM")
        import_without_torch("tvm")
        from byoc.layer_errors.compare import compare

        asked = {**rules.partition, "allow_wrong": rules.allow_wrong, **others}
        found = compare(model, progress=show, **asked)
    if html is not None:
        write_whole(html, found.to_html(model.name), VerifyError)
    found.report.require(**rules.demand)
    if as_json:
        say_json(found.to_json(), indent=1)
    else:
        _print(found, top)
    return 0 if found.kept is None or found.kept.holds else WRONG


def _print(found: Comparison, top: int) -> None:
    from rich import box
    from rich.table import Table

    console = table_console(200)
    worst = found.worst
    say(found.summary())
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in ("own", "SNR [dB]", "max", "mean", "total", "SNR [dB]"):
        table.add_column(heading, justify="right")
    for heading in ("node", "operator", "kernel", "computes"):
        table.add_column(heading, overflow="fold")
    for layer in worst[:top]:
        own, total = layer.own, layer.total
        numbers = (f"{own.greatest:.1e}", f"{own.mean:.1e}")
        texts = (layer.title, layer.operator, str(layer.kernel), layer.computes)
        table.add_row(*_share(own), *numbers, *_share(total), *texts)
    for name, errors in found.outputs.items():
        numbers = (f"{errors.greatest:.1e}", f"{errors.mean:.1e}")
        table.add_row("", "", *numbers, *_share(errors), name, "output", "", "")
    console.print(table)
    for layer in worst[:_DRAWN]:
        if layer.own.greatest:
            _draw(layer)
    if len(worst) > top:
        say(f"{len(worst) - top} more results lose less; --top shows more")
    if found.unknown:
        gives = "gives" if found.unknown == 1 else "give"
        say(f"{_nodes(found.unknown)} {gives} no value of the judge's; errors show in the next")
    if found.kept is not None:
        _print_kept(found.kept)
    say(f"judge: {found.judge}")


def _print_kept(kept: Kept) -> None:
    """What to keep, what was tried, and the options to copy."""
    for trial in kept.trials:
        say(f"  {_nodes(trial.kept)} kept: outputs are off by {trial.error:.1e}")
    if not kept.trials[-1].kept and kept.holds:
        say(f"nothing to keep: {kept.error:.1e} is within {kept.limit:g}")
    elif not kept.remedies:
        say(f"nothing to keep: all nodes compute in fp32 and the built-in library; {WAYS}")
    else:
        what = "keep" if kept.holds else "not enough:"
        say(f"{what} {_nodes(len(kept.remedies))}, for outputs off by {kept.error:.1e}:")
        names = [remedy.option for remedy in kept.remedies if remedy.is_excluded]
        options = [remedy.option for remedy in kept.remedies if not remedy.is_excluded]
        if options:
            say("  " + " ".join(options))
        if names:
            say(f"  quantise again with nodes_to_exclude=[{', '.join(names)}]")


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _share(errors: Errors) -> tuple[str, str]:
    from byoc.layer_errors.page import snr_text

    return f"{errors.share:.1e}", snr_text(errors)


def _draw(layer: Layer) -> None:
    """A bar for each power of ten that has elements."""
    from byoc.accuracy import BOUNDS

    say(f"{layer.title}: elements by their own error as a share of the range")
    names = [f"up to {bound:.0e}" for bound in BOUNDS] + ["more"]
    filled = [index for index, count in enumerate(layer.histogram) if count]
    most = max(layer.histogram)
    for index in range(filled[0], filled[-1] + 1):
        count = layer.histogram[index]
        bar = "#" * -(-_BAR * count // most)
        say(f"  {names[index]:>11} {count:>10} {bar}")
    say("")
