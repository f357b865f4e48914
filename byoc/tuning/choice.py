"""What users say about choosing, as the ``Selection`` that the partitioner asks."""

from __future__ import annotations

import os
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
    libraries: Selection | Specs = None,
    choose: str | None = None,
    tuning_db: str | os.PathLike[str] | None = None,
    threads: int = 1,
    machine: str = "",
    exact: bool = False,
) -> Selection:
    """The libraries to ask, and how to choose among them and their algorithms.

    ``choose`` is one of ``CHOICES``; a ``tuning_db`` decides for the layers that it knows, whatever
    that is, and ``measured`` without one takes that of ``database_path``. ``threads`` says which
    times of the database count, and ``machine``, a part of its name there, whose (default: this
    machine's). ``exact`` is that of ``partition_for_ext``.

    Raises ``LibraryError`` and ``TuningError``.
    """
    if choose not in (None, *CHOICES):
        raise TuningError(f"cannot choose by {choose!r}; need one of {', '.join(CHOICES)}")
    found = libraries if isinstance(libraries, Selection) else Selection.of(libraries)
    if exact:
        found = replace(found, exact=True)
    if choose is not None:
        found = replace(found, choose=cheapest if choose == "model" else first)
    if tuning_db is None and choose != "measured":
        return found
    path = database_path(tuning_db)
    name = machine_like(path, machine, threads) if machine else machine_key(threads)
    return replace(found, tuning=read(path, name))


def database_path(tuning_db: str | os.PathLike[str] | None) -> Path:
    """The database that a user names, or the default one."""
    return default_path() if tuning_db is None else as_path(tuning_db, "tuning_db", TuningError)
