"""Time every distinct convolution and matrix product of a network, each way to its kernel.

``python -m benchmarks.layers [--model resnet50] [--threads 1] [--engines ...]``.  A model is a name
from the zoo, when started in the project's root, or an ONNX file.  Exit code 1 where an engine
failed or differs from ONNX Runtime by more than 1e-4 of the range.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from benchmarks import harness
from benchmarks.layers import tables
from benchmarks.layers.engines import DEFAULT, find_engines
from benchmarks.layers.measure import measure
from benchmarks.layers.network import Network, read_network
from byoc.cli.options import InputShapes
from byoc.errors import ByocError

PROGRAM = "python -m benchmarks.layers"


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure and print; returns the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(given)
    progress = Console(stderr=True)
    names = [name for text in options.engines for name in text.split(",") if name]
    network = _pick(read_network(options.model, _shapes(options.input_shapes)), options.only)
    with tempfile.TemporaryDirectory(prefix="byoc-layers-") as folder:
        engines, absent = find_engines(names, Path(folder))
        for name, reason in absent.items():
            progress.print(f"{name} is absent: {reason}", style="dim", highlight=False)
        with progress.status("starting") as status:
            run = measure(network, engines, absent, options.threads, options.rounds, status.update)
    if options.json:
        harness.show_json(tables.to_json(run))
    elif options.markdown:
        print(tables.markdown(run, shlex.join([*PROGRAM.split(), *given])), end="")
    else:
        harness.show(tables.terminal(run))
    for failure in run.failures:
        print(f"error: {failure}", file=sys.stderr)
    return int(bool(run.failures))


def _parser() -> argparse.ArgumentParser:
    parser = harness.parser("layers", __doc__, markdown=True, threads=1, rounds=8, only="")
    parser.add_argument("--model", default="resnet50", metavar="NAME|FILE", help="(resnet50)")
    parser.add_argument(
        "--engines",
        nargs="+",
        default=list(DEFAULT),
        metavar="NAME",
        help=f"some of {', '.join(DEFAULT)}, onnxruntime, openvino, other kernel libraries or their"
        " .py files (all before onnxruntime)",
    )
    parser.add_argument("--input-shapes", metavar="SHAPES", help='such as "x:[1,3,224,224]"')
    return parser


def _shapes(text: str | None) -> dict[str, list[int | str]] | None:
    try:
        return None if text is None else InputShapes().convert(text, None, None)
    except click.UsageError as error:
        raise ByocError(f"--input-shapes: {error.message}") from error


def _pick(network: Network, only: str) -> Network:
    layers = tuple(layer for layer in network.layers if only in layer.label)
    if not layers:
        raise ByocError(f"no layer of {network.title} has {only!r} in its label")
    return Network(network.title, layers, network.others)


if __name__ == "__main__":
    sys.exit(main())
