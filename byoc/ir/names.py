"""What users call things by: names of operators, and shell patterns of nodes' names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import tvm

from byoc.arguments import as_text
from byoc.errors import ControlError

#: Names that a message lists.
MAX_LISTED = 4


def matches(glob: str, names: Iterable[str]) -> bool:
    """Whether a shell pattern, read as a pattern or as it stands, is one of these names."""
    return any(name == glob or fnmatchcase(name, glob) for name in names)


def resolve_op(name: str) -> list[str]:
    """Full names of the Relax operators that ``relax.nn.relu``, ``nn.relu`` or ``relu`` means.

    Raises ``ControlError``, with suggestions, if it means none.
    """
    name = as_text(name, "the operator", ControlError)
    known = [op for op in map(str, tvm.ir.Op.list_op_names()) if op.startswith("relax.")]
    for prefix in ("", "relax."):
        if prefix + name in known:
            return [prefix + name]
    found = sorted(op for op in known if op.rpartition(".")[2] == name)
    if found:
        return found
    short = {op.rpartition(".")[2]: op for op in known}
    raise ControlError(
        f"{name!r} is no Relax operator{suggestion(name, sorted(short))};"
        " byoc partition lists the operators of a model"
    )


def suggestion(name: str, known: Sequence[str]) -> str:
    """``; did you mean ...?`` with the known names that are close; empty where none is."""
    lowered = {entry.lower(): entry for entry in reversed(known)}
    close = difflib.get_close_matches(name.lower().strip("*?"), lowered, MAX_LISTED)
    return f"; did you mean {' or '.join(repr(lowered[entry]) for entry in close)}?" * bool(close)
