"""The tables of ``byoc libraries``: for terminals, as JSON, as the page ``docs/libraries.md``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from codegen_cc.errors import LibraryError
from codegen_cc.libraries.registry import SHIPPED
from codegen_cc.libraries.survey import Surveyed, support_text
from codegen_cc.operator import operator_of

_WORDS = """\
The words of kernel tables ([`my_library.md`](my_library.md)) and of predicates
([`annotate.md`](annotate.md)). Images are logically NCHW, weights OIHW; axes are never negative. An
operator is a record in `codegen_cc/operators`.
"""

_INTRODUCTION = """\
# Kernel libraries

<!-- Written by `make docs`, that is `byoc libraries --markdown`; do not edit. -->

What each shipped library computes, asked with sample nodes of every operator. `byoc libraries`
prints the same for a machine, with versions and the libraries of installed packages;
[`my_library.md`](my_library.md) tells how to add one.

| library | install | how it comes into a model | threads |
|---|---|---|---|
"""

_NOTES = {
    "builtin": "nothing: the kernels of `runtime/` are part of the package",
    "cblas": "`pip install 'tvm-byoc-ext[cblas]'` (OpenBLAS), or set `CBLAS_ROOT` to OpenBLAS, MKL "
    "or BLIS",
    "onednn": "`pip install 'tvm-byoc-ext[onednn]'`",
}


def to_json(surveyed: list[Surveyed]) -> list[dict[str, Any]]:
    """Everything that was found out; reasons by operator and variant, null where supported."""
    absent = ("name", "origin", "missing")
    return [
        {k: v for k, v in asdict(s).items() if (k in absent if s.missing else k != "missing")}
        for s in surveyed
    ]


def render(surveyed: list[Surveyed]) -> None:
    """Print which libraries there are, what each supports, and how to get the missing ones."""
    from rich.table import Table

    from byoc.terminal import table_console

    console = table_console(200, highlight=False)
    present = [s for s in surveyed if not s.missing]
    console.print(f"{len(present)} of {len(surveyed)} kernel libraries are usable")
    about = Table("library", "version", "from", "linked", "threads", box=None, pad_edge=False)
    for s in present:
        about.add_row(s.name, s.version, s.origin, s.linked, s.threads)
    console.print(about)
    matrix = Table("operator", *(s.name for s in present), box=None, pad_edge=False)
    for op in _operators(present):
        matrix.add_row(op, *(_support(s, op) for s in present))
    console.print()
    console.print(matrix)
    for s in surveyed:
        if s.missing:
            console.print(f"{s.name}: {s.missing}", markup=False)


def markdown(surveyed: list[Surveyed]) -> str:
    """The page of the shipped libraries, the same on every machine that has them.

    Raises ``LibraryError`` where one of them is missing.
    """
    shipped = [s for s in surveyed if s.name in SHIPPED]
    for s in shipped:
        if s.missing:
            raise LibraryError(f"the page needs every shipped library: {s.missing}")
    lines = [_INTRODUCTION.rstrip()]
    for s in shipped:
        linked = "static" if s.linked == "static" else "opened when a model first calls it"
        lines.append(f"| `{s.name}` | {_NOTES[s.name]} | {linked} | {s.threads} |")
    lines += ["", "## Operators", ""]
    lines.append(f"| operator | {' | '.join(f'`{s.name}`' for s in shipped)} |")
    lines.append(f"|---|{'---|' * len(shipped)}")
    for op in _operators(shipped):
        cells = " | ".join(_support(s, op) for s in shipped)
        lines.append(f"| `{op}` | {cells} |")
    lines += ["", "## Why not", "", "Reasons for what is refused of an operator that is taken."]
    for s in shipped:
        lines += ["", f"### {s.name}", "", "| operator | variant | reason |", "|---|---|---|"]
        lines += [
            f"| `{op}` | {variant or 'plain'} | {reason.partition('; need one of ')[0]} |"
            for op, variants in s.operators.items()
            if None in variants.values()
            for variant, reason in variants.items()
            if reason is not None
        ]
    lines += ["", *_records(_operators(shipped))]
    return "\n".join(lines) + "\n"


def _operators(surveyed: list[Surveyed]) -> list[str]:
    """The operators that libraries were asked about, in order."""
    return list(dict.fromkeys(op for s in surveyed for op in s.operators))


def _support(s: Surveyed, op: str) -> str:
    """What a library supports of an operator; nothing of one that came with a later library."""
    return support_text(s.operators[op]) if op in s.operators else "-"


def _records(names: list[str]) -> list[str]:
    """The section about the operators themselves."""
    lines = ["## What an operator is", "", _WORDS]
    lines += ["| operator | operands | attributes | results | |", "|---|---|---|---|---|"]
    for name in names:
        operator = operator_of(name)
        operands = [f"[{role}]" if role in operator.optional else role for role in operator.roles]
        operands += ["..."] if operator.repeats else []
        attributes = "; ".join(f"`{key}`: {text}" for key, text in operator.attributes.items())
        about = [operator.about] if operator.about else []
        if operator.epilogue:
            about.append(f"then {', '.join(operator.epilogue)}, each optional")
        cells = (", ".join(operands), attributes, ", ".join(operator.results), "; ".join(about))
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return lines
