"""Run ONNX's backend tests through this backend, through TVM alone and through ONNX Runtime.

What the table of wrong forms refuses runs once more with its operators allowed, which shows whether
the table is right. ``python -m tests.conformance.run --write`` regenerates ``docs/conformance.md``
and the evidence in ``wrong_forms.json``; without it, the differences from these are printed.
Exit code 1 says that there are some, that an entry has no evidence, or that a result is wrong.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping

from byoc.frontends.onnx import wrong_forms
from tests.conformance.cases import Case, all_cases, named, subset
from tests.conformance.engines import FAILED, PASSED, Result, run_case
from tests.conformance.evidence import (
    evidence_of,
    proposals,
    table_text,
    unshown,
    with_evidence,
)
from tests.conformance.table import FILE, OURS, OUTCOMES, WRONG, Entry, entry, read, render
from tests.workers import Lost, Pool

#: Seconds that a case may take. The networks take TVM's own loops a minute or so, and LLVM needs
#: another for TVM's bfloat16 code of an attention.
TIME_LIMIT = {"light": 900.0}
USUAL_TIME_LIMIT = 240.0

#: A case, and the engine that runs it.
Task = tuple[Case, str]


def run(cases: list[Case], jobs: int = 2, both: bool = True, progress: bool = False) -> list[Entry]:
    """Rows for the cases, in their order.

    With ``both``, TVM alone and ONNX Runtime run every case; else TVM alone those that do not pass
    through us.
    """
    results: dict[str, dict[str, Result]] = {case.name: {} for case in cases}
    begin, done = time.monotonic(), 0

    def finished(task: Task, result: Result | Lost) -> list[Task]:
        nonlocal done
        case, engine = task
        if isinstance(result, Lost):
            result = Result(FAILED, result.text)
        results[case.name][engine] = result
        if engine == "ours" and (both or result.status != PASSED):
            return [(case, "tvm")]
        if engine == "tvm" and results[case.name]["ours"].listed:
            return [(case, "allowed")]
        if engine != "onnxruntime" and both:
            return [(case, "onnxruntime")]
        done += 1
        if progress and (done % 50 == 0 or done == len(cases)):
            seconds = time.monotonic() - begin
            print(f"{done} of {len(cases)} tests, {seconds:.0f} s", file=sys.stderr, flush=True)
        return []

    pool: Pool[Task] = Pool(
        run=_run_named,
        limit=lambda task: TIME_LIMIT.get(task[0].kind, USUAL_TIME_LIMIT),
        preload=["tests.conformance.preload"],
        message=lambda task: (task[0].name, task[1]),
    )
    pool.run_tasks([(case, "ours") for case in cases], jobs, finished)
    return [entry(case.kind, case.name, results[case.name]) for case in cases]


def _run_named(message: tuple[str, str]) -> Result:
    name, engine = message
    return run_case(named()[name], engine)


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subset", action="store_true", help="a few hundred tests only")
    parser.add_argument("--only", nargs="+", metavar="GLOB", help="tests of these names only")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    files = f"docs/{FILE.name} and the evidence in {wrong_forms.FILE.name}"
    parser.add_argument("--write", action="store_true", help=f"write {files}")
    options = parser.parse_args()
    cases = subset() if options.subset else list(all_cases())
    if options.only:
        cases = [c for c in cases if any(fnmatch.fnmatch(c.name, glob) for glob in options.only)]
    entries = run(cases, options.jobs, progress=True)
    counts = Counter(row.outcome for row in entries)
    for outcome in OUTCOMES:
        print(f"{counts[outcome]:5} {outcome}")
    for row in entries:
        if row.outcome == OURS:
            print(f"{row.name}: {row.detail}")
        if row.outcome == WRONG:
            _print_proposals(row)
    # A part of the tests updates its rows and leaves the others.
    known = dict(read(FILE.read_text())) if FILE.exists() else {}
    names = {case.name for case in all_cases()}
    rows = {name: row for name, row in known.items() if name in names}
    rows |= {row.name: row for row in entries}
    if options.write:
        FILE.write_text(render(list(rows.values())))
        wrong_forms.FILE.write_text(table_text(with_evidence(rows.values())))
        changed = False
    else:
        changed = _print_differences(entries, known)
        changed |= _print_differences_of_evidence(rows.values())
    bare = unshown(with_evidence(rows.values()))
    for stated in bare:
        print(
            f"{wrong_forms.FILE.name}: {stated['operator']}: {stated['reason']}: refuses what is"
            " right: no test shows it wrong; delete it, or name one of our own as shown_by"
        )
    return int(changed or bool(bare) or counts[OURS] + counts[WRONG] > 0)


def _print_proposals(row: Entry) -> None:
    print(f"{row.name}: {row.detail}; wrong without a word. Make it right, or refuse it:")
    for proposal in proposals(named()[row.name].model(), row.detail):
        print(f"  {json.dumps(proposal)}")


def _print_differences(entries: list[Entry], known: Mapping[str, Entry]) -> bool:
    changed = [row for row in entries if known.get(row.name) != row]
    for row in changed:
        before = known.get(row.name)
        was = f"{before.outcome} ({before.detail})" if before else "not in the table"
        print(f"{row.name}: {row.outcome} ({row.detail}); was {was}")
    if changed:
        print("If this is right, run `make conformance`.")
    return bool(changed)


def _print_differences_of_evidence(rows: Iterable[Entry]) -> bool:
    changed = False
    for stated, found in evidence_of(rows):
        if stated.get("evidence") != found:
            changed = True
            print(
                f"{wrong_forms.FILE.name}: {stated['operator']}: {stated['reason']}: {found}; was"
                f" {stated.get('evidence')}"
            )
    return changed


if __name__ == "__main__":
    sys.exit(main())
