"""``byoc doctor``: what is here, what is missing, and the command that brings it."""

from __future__ import annotations

import click

from byoc.cli import options, progress
from byoc.terminal import say, say_json


@click.command("doctor")
@options.flag("--clear-cache", "First remove what is kept to save work; tuning times stay.")
@options.as_json
@options.quiet
@options.verbose
def doctor_verb(clear_cache: bool, as_json: bool) -> int:
    """Look at this machine: TVM, compiler, CPU, kernel libraries, cache, optional packages.

    Exit code 1 where something is missing without which no model can be compiled.
    """
    from byoc import diagnosis

    if clear_cache:
        from codegen_cc.cache import clear

        count = clear()
        say(f"removed {count} thing{'' if count == 1 else 's'} from the cache", err=True)
    with progress.stages() as show:
        show("look at this machine")
        findings = diagnosis.diagnose()
    well = diagnosis.is_well(findings)
    if as_json:
        say_json(diagnosis.to_json(findings))
        return 0 if well else 1
    say("ready to compile" if well else "not ready to compile")
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        mark = "ok" if finding.found else "NO" if finding.needed else "--"
        say(f"  {mark}  {finding.what:<{width}}  {finding.found or finding.missing}")
    absent = [finding for finding in findings if not finding.found and finding.remedy]
    for finding in absent:
        why = "needed" if finding.needed else "optional"
        say(f"{finding.what} ({why}): {finding.remedy}")
    return 0 if well else 1
