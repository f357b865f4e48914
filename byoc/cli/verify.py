"""``byoc verify``: a compiled library beside ONNX Runtime, on the same inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from byoc.cli import options, progress
from byoc.terminal import say, say_json, table_console

if TYPE_CHECKING:
    from byoc.verification import Verification

#: Exit code of a check that does not hold.
WRONG = 1

tolerance = options.share(
    "--tolerance",
    "Greatest error of floating-point outputs as a share of their range (default: 1e-4 for "
    "fp32, less for float64, more for float16).",
)


@click.command("verify")
@click.argument("model", type=options.PATH)
@click.argument("library", type=options.PATH)
@options.inputs
@options.seed
@tolerance
@options.threads
@options.as_json
@options.quiet
@options.verbose
def verify_verb(model: Path, library: Path, as_json: bool, **others: Any) -> int:
    """Compare LIBRARY, compiled from the ONNX file MODEL, with ONNX Runtime or ONNX's evaluator.

    Exit code 1 where an output is off by more than the tolerance, or has NaN or infinity at other
    places. Symbolic axes are tried at several sizes.
    """
    with progress.stages() as show:
        show("load ONNX")
        from byoc.verification import verify

        show("compare the answers")
        found = verify(model, library, **others)
    if as_json:
        say_json(found.to_json())
    else:
        show_verification(found)
    return 0 if found.holds else WRONG


def show_verification(found: Verification) -> None:
    """Print the answer, and a row for each output of each run."""
    from rich.table import Table

    say(f"{'agrees' if found.holds else 'does not agree'} with {found.reference}")
    table = Table("sizes", "output", "type", "error", "limit", "")
    for run in found.runs:
        sizes = ", ".join(f"{name}={size}" for name, size in run.sizes.items())
        if run.skipped or run.failed:
            why = f"not compared: {run.skipped}" if run.skipped else f"failed: {run.failed}"
            table.add_row(sizes, "", "", "", "", why)
        for check in run.outputs:
            limit = f"{check.tolerance:.0e}" if check.tolerance else "equal"
            error = "" if check.problem else f"{check.error:.1e}"
            verdict = check.problem or ("" if check.holds else "too large")
            kind = f"{check.dtype}{list(check.shape)}"
            table.add_row(sizes, check.name, kind, error, limit, verdict)
    table_console().print(table)
