"""``byoc partition``: which operators would go where, and why; nothing is compiled."""

from __future__ import annotations

import json
from pathlib import Path

import click

from byoc.cli import options


@click.command("partition")
@click.argument("model", type=click.Path(path_type=Path))
@options.input_shapes
@click.option(
    "--dump-ir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the module after each pass here.",
)
@options.as_json
@options.verbose
def partition_verb(
    model: Path, input_shapes: dict[str, list[int]] | None, dump_ir: Path | None, as_json: bool
) -> None:
    """Show what of the ONNX file MODEL the kernels would run, and what stays with TVM and why."""
    with options.progress() as show:
        show("load TVM")
        from byoc.partition import partition_with_report
        from byoc.prepare import import_onnx, prepare

        show("prepare the model")
        prepared = prepare(model, input_shapes)
        show("import into TVM")
        module = import_onnx(prepared)
        show("partition")
        _, report = partition_with_report(module, dump_ir=dump_ir)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        from rich.console import Console

        report.render(Console())
