"""What is written to a terminal: names from a model can neither act on it nor be read as markup."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from codegen_cc.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment


def say(text: str, err: bool = False, nl: bool = True, lines: bool = False) -> None:
    """Write a line to standard output or to standard error, or text that has ``lines``."""
    with naming_standard_output():
        click.echo(printable(text, keep="\n\t" if lines else ""), err=err, nl=nl)


@contextmanager
def naming_standard_output() -> Iterator[None]:
    """Let an ``OSError`` of writing to it, such as one of a full disk, say so."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or "standard output"
        raise


def say_json(value: object, indent: int = 2) -> None:
    """Write plain numbers, texts, lists and dictionaries as JSON to standard output."""
    say(json.dumps(value, indent=indent), lines=True)


def table_console(pipe_width: int = 160, **options: Any) -> Console:
    """A console for tables on standard output; those in a pipe or file are ``pipe_width`` wide.

    Rich would fold them to the columns of a terminal that is not there.
    """
    return new_console(width=None if sys.stdout.isatty() else pipe_width, **options)


def new_console(**options: Any) -> Console:
    """A console of Rich's whose texts are safe; Rich's own control codes pass."""
    return _kind()(**{"markup": False, "emoji": False, **options})


@cache
def _kind() -> type[Console]:
    from rich.console import Console  # takes a tenth of a second
    from rich.segment import Segment
    from rich.text import Text

    class Terminal(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            # Here, so that the widths of columns are those of what is shown.
            return super().render_str(printable(text, keep="\n\t"), **options)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else printable(text, keep="\n\t"), style, control)

    return Terminal
