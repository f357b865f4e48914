"""The conformance table: results of all cases as ``docs/conformance.md``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tests.conformance.cases import KINDS
from tests.conformance.engines import AS_RUNTIME, FAILED, PASSED, REFUSED, REFUSED_FORM, Result

FILE = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"

OFFLOADED, IN_TVM = "passes, offloaded", "passes in TVM"
REFUSED_BY_NAME, NOT_IMPORTABLE = "refused by name", "not importable by TVM"
WRONG, OURS = "wrong", "FAILS THROUGH US"

#: Outcomes in the order of the totals, with what they mean.
OUTCOMES = {
    OFFLOADED: "right, and at least one operator ran on this backend's kernels",
    IN_TVM: "right, and every operator stayed with TVM",
    REFUSED_BY_NAME: "the node's form would give a wrong result, and compiling it says so",
    NOT_IMPORTABLE: "the model cannot be imported into TVM, and compiling it says why",
    AS_RUNTIME: "not what the test expects, but what ONNX Runtime gives",
    WRONG: "neither TVM alone nor this backend gives the result, without a word; must be 0",
    OURS: "TVM alone gives the result and this backend does not; must be 0",
}


#: What an outcome is in one word.
_KINDS_OF_OUTCOME = {
    OFFLOADED: "pass",
    IN_TVM: "pass",
    REFUSED_BY_NAME: "refused",
    NOT_IMPORTABLE: "refused",
    AS_RUNTIME: "fail",
    WRONG: "fail",
    OURS: "fail",
}

#: What the table says of a test that ONNX Runtime passes.
_PASSES = "passes"


@dataclass(frozen=True)
class Entry:
    """One row of the table."""

    kind: str
    name: str
    outcome: str
    detail: str = ""
    #: Whether ONNX Runtime passes.
    runtime: bool = False


#: Between the reason of an entry of the table of wrong forms and what comes out without it.
IF_ALLOWED = "; if allowed: "


def entry(kind: str, name: str, results: Mapping[str, Result]) -> Entry:
    """What a case's results come to, by engine.

    TVM's is needed only where ours is no pass, that with operators allowed where the table of wrong
    forms refuses the case.
    """
    outcome, detail = _outcome(results["ours"], results.get("tvm"), results.get("allowed"))
    runtime = results.get("onnxruntime")
    return Entry(kind, name, outcome, detail, runtime is not None and runtime.status == PASSED)


def _outcome(ours: Result, tvm: Result | None, allowed: Result | None) -> tuple[str, str]:
    if ours.status == PASSED:
        note = "" if tvm is None or tvm.status == PASSED else f"TVM alone: {_brief(tvm)}"
        if ours.offloaded == 0:
            return IN_TVM, note
        count = f"{ours.offloaded} of {ours.operators} operators"
        return OFFLOADED, "; ".join(filter(None, [count, note]))
    if ours.status == REFUSED_FORM:
        note = "; TVM alone passes" if tvm is not None and tvm.status == PASSED else ""
        without = "" if allowed is None else IF_ALLOWED + _brief(allowed)
        return REFUSED_BY_NAME, ours.message + without + note
    if ours.status == AS_RUNTIME:
        return AS_RUNTIME, ours.message
    if tvm is None or tvm.status == PASSED:
        return OURS, _brief(ours)
    if ours.status == REFUSED or (ours.status == FAILED and tvm.status == REFUSED):
        return NOT_IMPORTABLE, ours.message
    if tvm.status != ours.status:
        return WRONG, f"{_brief(ours)}; TVM alone: {_brief(tvm)}"
    return WRONG, _brief(tvm)


def _brief(result: Result) -> str:
    what = {FAILED: "error", REFUSED: "not importable", REFUSED_FORM: "refused"}.get(
        result.status, result.status
    )
    return f"{what}: {result.message}" if result.message else what


def render(entries: list[Entry]) -> str:
    """The document's text."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("onnx", "apache-tvm"))
    lines = [
        "# Conformance",
        "",
        f"Every backend test of {versions.replace(', ', ' with ')}, run through this backend and",
        "through TVM alone. Written by `make conformance`; a subset is checked by the tests. What",
        "the table of wrong forms refuses also ran with the operator allowed: `if allowed` says",
        "how that ends.",
        "",
        "| outcome | tests | of them " + " | ".join(KINDS) + " | meaning |",
        "|---|--:" + "|--:" * len(KINDS) + "|---|",
    ]
    counts = Counter((e.outcome, e.kind) for e in entries)
    for outcome, meaning in OUTCOMES.items():
        by_kind = [counts[outcome, kind] for kind in KINDS]
        cells = " | ".join(map(str, by_kind))
        lines.append(f"| {outcome} | {sum(by_kind)} | {cells} | {meaning} |")
    by_kind = [sum(counts[outcome, kind] for outcome in OUTCOMES) for kind in KINDS]
    lines.append(f"| all | {sum(by_kind)} | {' | '.join(map(str, by_kind))} | |")
    lines += ["", _beside_runtime(entries)]
    lines += _tests(entries)
    return "\n".join(lines) + "\n"


def _beside_runtime(entries: list[Entry]) -> str:
    """One line on the tests that ONNX Runtime passes."""
    counts = Counter(_KINDS_OF_OUTCOME[e.outcome] for e in entries if e.runtime)
    told = ", ".join(f"{counts[kind]} {kind}" for kind in ("pass", "refused", "fail"))
    return (
        f"Of the {counts.total()} tests that the CPU provider of ONNX Runtime"
        f" {version('onnxruntime')} passes: {told}."
    )


def _tests(entries: list[Entry]) -> list[str]:
    lines = []
    for kind in KINDS:
        rows = sorted((e for e in entries if e.kind == kind), key=lambda e: e.name)
        if rows:
            lines += ["", f"## {kind}", "", "| test | outcome | ONNX Runtime | detail |"]
            lines += ["|---|---|---|---|", *map(_line, rows)]
    return lines


def _line(row: Entry) -> str:
    runtime = _PASSES if row.runtime else ""
    return f"| {row.name} | {row.outcome} | {runtime} | {row.detail} |"


def read(text: str) -> Mapping[str, Entry]:
    """The rows of a rendered document, by test."""
    entries: dict[str, Entry] = {}
    kind = ""
    for line in text.splitlines():
        if line.startswith("## "):
            kind = line[3:]
        row = re.fullmatch(r"\| (\S+) \| ([^|]+?) \| ([^|]*?) ?\| ([^|]*?) ?\|", line)
        if kind and row and row[1] != "test":
            name, outcome, runtime, detail = row.groups()
            entries[name] = Entry(kind, name, outcome, detail, runtime == _PASSES)
    return entries


def written_for(text: str) -> str:
    """The version of onnx whose tests a rendered document has."""
    found = re.search(r"Every backend test of onnx (\S+)", text)
    return found[1] if found else ""
