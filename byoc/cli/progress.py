"""What a verb is doing, for whoever waits: the one place that shows it.

On a terminal the current stage and its seconds stand on one line, and what took two seconds or
more stays there with its time.  Nothing is shown where standard error is no terminal, or by
``--quiet``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from byoc.cli.process import native_messages_dropped
from byoc.terminal import new_console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

#: Seconds from which on a stage is worth a line of its own.
_LONG = 2.0


@dataclass
class Settings:
    """What outlives a verb's options, for the places that write to standard error."""

    verbose: bool = False
    quiet: bool = False


def settings() -> Settings:
    """Those of the verb that runs; the defaults outside of one."""
    context = click.get_current_context(silent=True)
    return Settings() if context is None else context.ensure_object(Settings)


class Stage:
    """The stage that runs, drawn anew by Rich; ``show`` begins another one."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._name, self._begin = "starting", clock()

    def __rich__(self) -> Text:
        from rich.text import Text

        seconds = self._clock() - self._begin
        return Text(f"{self._name}  {seconds:.0f} s" if seconds >= 1 else self._name)

    def show(self, name: str) -> None:
        """End the stage before, and begin one."""
        self.end()
        self._name, self._begin = name, self._clock()

    def end(self) -> None:
        """Leave a line where the stage was long."""
        seconds = self._clock() - self._begin
        if seconds >= _LONG:
            self._console.print(f"{seconds:7.1f} s  {self._name}", highlight=False)


@contextmanager
def stages(running: bool = False) -> Iterator[Callable[[str], None]]:
    """What shows the stages of a verb, by their names; messages of TVM's own are for -v.

    Where networks are ``running``, theirs are not dropped, and the stage is drawn twice a second,
    which the times do not notice.
    """
    console = _console()
    stage = Stage(console)
    with (
        nullcontext() if running or settings().verbose else native_messages_dropped(),
        console.status(stage, refresh_per_second=2 if running else 12.5),
    ):
        yield stage.show
        stage.end()


@contextmanager
def bar() -> Iterator[Callable[[str, int, int], None]]:
    """What shows how many of so many things are done, what is done now, and the time left."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed
    from rich.progress import TimeRemainingColumn as Left

    texts = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(), MofNCompleteColumn(), Elapsed(), Left(), texts)
    console = _console()
    with Progress(*columns, console=console, transient=True, disable=console.quiet) as shown:
        task = shown.add_task("starting", total=None)

        def show(what: str, done: int, total: int) -> None:
            # Without things to count, as long as they are not known, the bar moves to and fro.
            known = total if total > 1 or done else None
            shown.update(task, description=what, completed=done, total=known)

        yield show


def _console() -> Console:
    """Standard error, silent where nobody looks; Rich draws nothing there but prints lines."""
    console = new_console(stderr=True)
    console.quiet = settings().quiet or not console.is_terminal
    return console
