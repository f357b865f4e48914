"""``byoc libraries``: which kernel libraries there are, and what each supports."""

from __future__ import annotations

import click

from byoc.cli import options
from byoc.terminal import say, say_json


@click.command("libraries")
@click.argument("more", nargs=-1, metavar="[NAME|FILE.py]...")
@options.as_json
@options.flag("--markdown", "Print the page docs/libraries.md.")
@options.verbose
def libraries_verb(more: tuple[str, ...], as_json: bool, markdown: bool) -> None:
    """List the kernel libraries: versions, how they are linked, what they support.

    Those that come with byoc, those of installed packages, and any others that are named.
    """
    if as_json and markdown:
        raise click.UsageError("--json and --markdown both print to standard output; give one")
    from byoc import libraries_page
    from codegen_cc.libraries.survey import survey

    found = survey(more)
    if as_json:
        say_json(libraries_page.to_json(found))
    elif markdown:
        say(libraries_page.markdown(found), nl=False, lines=True)
    else:
        libraries_page.render(found)
    absent = [entry for entry in found if entry.missing and entry.origin in more]
    if absent:
        raise click.ClickException(absent[0].missing)
