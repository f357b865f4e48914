"""``byoc partition``: which operators would go where, and why; nothing is compiled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from byoc.cli import control, options, progress
from byoc.cli.process import import_without_torch
from byoc.destination import require_file_to_write, require_folder_to_make, write_whole
from byoc.errors import PartitionError
from byoc.stages import Stages
from byoc.terminal import say, say_json, table_console


@click.command("partition")
@click.argument("model", type=options.PATH)
@options.input_shapes
@options.fixed_inputs
@options.dump_ir
@control.rules
@options.as_json
@options.flag("--dot", "Print the network as Graphviz text instead of tables.")
@options.file("--html", "FILE", "Write a page that shows the network, the tables and the reasons.")
@options.quiet
@options.verbose
def partition_verb(
    model: Path,
    input_shapes: dict[str, list[int]] | None,
    fixed_inputs: dict[str, bool | int | float],
    dump_ir: Path | None,
    rules: control.Choices,
    as_json: bool,
    dot: bool,
    html: Path | None,
) -> None:
    """Show what of the ONNX file MODEL the kernels would run, and what stays with TVM and why."""
    if as_json and dot:
        raise click.UsageError("--json and --dot both print to standard output; give one")
    if html is not None:
        require_file_to_write(html, PartitionError, [model])
    if dump_ir is not None:
        require_folder_to_make(dump_ir, PartitionError)
    with progress.stages() as show:
        show("load TVM")
        import_without_torch("tvm")
        from byoc.compiler.partition import partition_with_report
        from byoc.frontends import import_model
        from byoc.tuning.choice import select

        # Before the model is read, which may call operators that a library brings.
        select(rules.partition["libraries"])
        imported = import_model(
            model, input_shapes, rules.allow_wrong, Stages(show), fixed_inputs=fixed_inputs
        )
        show("partition")
        module, report = partition_with_report(imported.module, dump_ir=dump_ir, **rules.partition)
        report = replace(report, axes=imported.axes)
        show("plan")
        report = report.planned(module)
    if html is not None:
        write_whole(html, report.to_html(model.name), PartitionError)
    if as_json:
        say_json(report.to_json())
    elif dot:
        say(report.to_dot(), nl=False, lines=True)
    else:
        report.render(table_console())
    report.require(**rules.demand)
