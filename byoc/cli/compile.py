"""``byoc compile``: an ONNX file becomes one deployable library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from byoc.cli import control, options
from byoc.cli.process import give_large_blocks_back, import_without_torch

if TYPE_CHECKING:
    from byoc.compiler import Compiled


@click.command("compile")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FILE.so")
@options.input_shapes
@options.target
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stored as the default number of threads of whoever loads the library.",
)
@click.option(
    "--dump-code", type=click.Path(path_type=Path), metavar="DIR", help="Keep the emitted C here."
)
@click.option(
    "--dump-ir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the module after each pass here.",
)
@control.rules
@options.as_json
@options.verbose
def compile_verb(
    model: Path,
    output: Path,
    input_shapes: dict[str, list[int]] | None,
    target: str | None,
    threads: int | None,
    dump_code: Path | None,
    dump_ir: Path | None,
    rules: control.Rules,
    as_json: bool,
) -> None:
    """Compile the ONNX file MODEL into one library that needs only TVM's runtime."""
    give_large_blocks_back()
    with options.progress() as show:
        show("load TVM")
        import_without_torch("tvm")
        from byoc.compiler import compile

        compiled = compile(
            model,
            output,
            input_shapes,
            target=target,
            threads=threads,
            dump_code=dump_code,
            dump_ir=dump_ir,
            progress=show,
            min_coverage=rules.demand["min_coverage"],
            require_full=rules.demand["full"],
            **rules.choice,
        )
    if as_json:
        click.echo(json.dumps(_as_dict(compiled, output), indent=2))
    else:
        _print(compiled, output)


def _as_dict(compiled: Compiled, output: Path) -> dict[str, object]:
    return {
        "output": str(output),
        "bytes": output.stat().st_size,
        "seconds": {stage: round(value, 3) for stage, value in compiled.seconds.items()},
        "inputs": [[info.name, info.shape, info.dtype] for info in compiled.metadata.inputs],
        "outputs": [[info.name, info.shape, info.dtype] for info in compiled.metadata.outputs],
        "report": compiled.report.to_json(),
    }


def _print(compiled: Compiled, output: Path) -> None:
    seconds = sum(compiled.seconds.values())
    click.echo(f"{output}: {output.stat().st_size / 1e6:.1f} MB in {seconds:.1f} s")
    click.echo(compiled.report.summary())
    for region in compiled.report.regions:
        if region.plan is not None:
            click.echo(f"  {region.name}: {region.plan}")
    known = [use for use in compiled.report.kernels if use.measured]
    if known:
        ways = ", ".join(f"{use.measured} x {use.library}: {use.algorithm}" for use in known)
        click.echo(f"  as measured: {ways}")
    for what, infos in (("in ", compiled.metadata.inputs), ("out", compiled.metadata.outputs)):
        for info in infos:
            click.echo(f"  {what} {info}")
    click.echo(f"run it: byoc run {output} --print-time")
