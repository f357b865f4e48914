"""Options that take several values after one name, as in ``--threads 1 2``."""

from __future__ import annotations

from collections.abc import Iterator

import click


class SeveralValues(click.Command):
    """A command whose repeatable numbers and choices are also taken in a row.

    ``--threads 1 2`` is read as ``--threads 1 --threads 2``: values go on until the next option.
    Numbers stop at the first word that is none, so that an argument may follow them.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option's name before each value, and let click do the rest."""
        return super().parse_args(ctx, list(self._spelled_out(args)))

    def _spelled_out(self, args: list[str]) -> Iterator[str]:
        several = {
            name: isinstance(option.type, click.IntRange)
            for option in self.params
            if isinstance(option, click.Option) and option.multiple
            # Free text would swallow the arguments.
            if isinstance(option.type, click.IntRange | click.Choice)
            for name in option.opts
        }
        current, numbers, first = "", False, False
        for position, arg in enumerate(args):
            if arg == "--":
                yield from args[position:]
                return
            if arg.startswith("-"):
                current, first = (arg, True) if arg in several else ("", False)
                numbers = several.get(arg, False)
                yield arg
            elif current and (first or not numbers or arg.isdigit()):
                if not first:
                    yield current
                first = False
                yield arg
            else:
                current = ""
                yield arg
