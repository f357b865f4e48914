"""What users say about choosing, as the ``Selection`` that the partitioner asks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from byoc.arguments import as_path
from byoc.errors import TuningError
from byoc.tuning.database import default_path, machine_key, machine_like, read
from codegen_cc.libraries import Selection
from codegen_cc.libraries.selection import Specs, cheapest, first

#: Ways to choose: the first library in order; the one that states the least cost; by time.
CHOICES = ("order", "model", "measured")


def select(
    libraries: Selection | Specs = None, choose: str | None = None, exact: bool = False
) -> Selection:
    """The libraries to ask, and how to choose among them, before measured times have their say.

    ``choose`` is one of ``CHOICES``; ``exact`` is that of ``partition_for_ext``.
    Raises ``LibraryError`` and ``TuningError``.
    """
    if choose not in (None, *CHOICES):
        raise TuningError(f"cannot choose by {choose!r}; need one of {', '.join(CHOICES)}")
    found = libraries if isinstance(libraries, Selection) else Selection.of(libraries)
    if exact:
        found = replace(found, exact=True)
    if choose is not None:
        found = replace(found, choose=cheapest if choose == "model" else first)
    return found


def deciding_database(choose: str | None, tuning_db: str | os.PathLike[str] | None) -> Path | None:
    """The database whose times decide for the layers that it knows, or None.

    One that a user names does, whatever ``choose`` is; ``measured`` without one takes the default.
    Raises ``TuningError`` for what is no path.
    """
    return None if tuning_db is None and choose != "measured" else database_path(tuning_db)


def timed(
    selection: Selection, database: Path | None, threads: int = 1, machine: str = ""
) -> Selection:
    """A selection that knows the times of a database, read here; as it is without a database.

    ``threads`` says which times count, and ``machine``, a part of its name there, whose (default:
    this machine's). Raises ``TuningError`` for a ``machine`` that the database lacks; what else is
    wrong with it is a ``TuningWarning``.
    """
    if database is None:
        return selection
    name = machine_like(database, machine, threads) if machine else machine_key(threads)
    return replace(selection, tuning=read(database, name))


def timed_by_all(
    selection: Selection, database: Path, threads: int, machines: Sequence[str]
) -> Selection:
    """A selection that knows the times of several machines of a database, the first one's first.

    ``machines`` are parts of their names. Raises ``TuningError`` as ``timed`` does, and for a
    machine that is named twice.
    """
    names = [machine_like(database, part, threads) for part in machines]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TuningError(f"machine {twice!r} is named twice, by {' and '.join(machines)}")
    fleet = [(name.rpartition(", ")[0], read(database, name)) for name in names]
    return replace(selection, tuning=fleet[0][1], fleet=tuple(fleet))


def database_path(tuning_db: str | os.PathLike[str] | None) -> Path:
    """The database that a user names, or the default one."""
    return default_path() if tuning_db is None else as_path(tuning_db, "tuning_db", TuningError)
