"""``byoc completion``: what a shell reads so that the tab key completes verbs and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from byoc.terminal import say

_SHELLS = ("bash", "zsh", "fish")
#: By click's rule for a program ``byoc``.
_VARIABLE = "_BYOC_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion_verb(context: click.Context, shell: str) -> None:
    """Print the completion for a shell, as in  eval "$(byoc completion bash)"."""
    kind = get_completion_class(shell)
    assert kind is not None  # click has all of _SHELLS
    root = context.find_root()
    completion = kind(root.command, {}, "byoc", _VARIABLE)
    # Of bash, click's own `source` asks the version by running it, and warns of its own.
    text = completion.source_template % completion.source_vars()
    say(text, lines=True, nl=False)
