"""``byoc extern``: the integration of a function of a C header, generated."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from byoc.cli import options
from byoc.terminal import say, say_json

if TYPE_CHECKING:
    from byoc.extern.generate import Generated


@click.command("extern")
@click.argument("header", type=options.PATH)
@options.file("-o --output", "DIR", "Folder for the generated files.", required=True)
@click.option(
    "--roles",
    metavar="FILE|TEXT",
    help="What the arguments are, as a file or as text, such as 'my_gemm: a=input[m,k] "
    "b=weight[k,n] c=output[m,n] m,n,k=size op=matmul' (default: 'byoc: ...' in the header's "
    "comments).",
)
@options.words(
    "--function functions",
    "NAME",
    "Only this function; may be repeated (default: all that are annotated).",
)
@options.file(
    "--link links",
    "FILE",
    "C code of the functions: a .c, .o or .a file; may be repeated.",
    multiple=True,
)
@options.file(
    "-I --include-dir include_dirs",
    "DIR",
    "Where the header's own includes are; may be repeated.",
    multiple=True,
)
@options.as_json
@options.verbose
def extern_verb(
    header: Path, output: Path, links: tuple[Path, ...], as_json: bool, **others: Any
) -> None:
    """Make C functions of HEADER callable from TVM.

    For each function: a packed function, operators for te and Relax, a kernel library where the
    operator has one, and tests.
    """
    from byoc.extern.generate import generate

    generated = generate(header, output, links=links, **others)
    if as_json:
        say_json([_as_dict(item) for item in generated])
    else:
        _print(generated, output, bool(links))


def _as_dict(item: Generated) -> dict[str, object]:
    return {
        "function": item.signature.name,
        "line": item.signature.prototype.line,
        "title": item.signature.title,
        "files": [*item.files, "Makefile"],
        "no_library": item.no_row,
    }


def _print(generated: list[Generated], output: Path, linked: bool) -> None:
    for item in generated:
        say(item.signature.title)
        say(f"  {', '.join(item.files)}")
        if item.no_row is not None:
            say(f"  no kernel library: {item.no_row}")
    hint = "" if linked else " LINK=<its .c, .o or .a files>"
    # An environment that is not activated: make would find another Python.
    if Path(shutil.which("python3") or "").parent != Path(sys.executable).parent:
        hint += f" PYTHON={quote(sys.executable)}"
    say(f"next: make -C {quote(str(output))}{hint} test")
