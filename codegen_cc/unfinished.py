"""Output that appears whole: written in a folder beside its place, and moved there in one step."""

from __future__ import annotations

import os
import secrets
import shutil
import string
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Seconds after which such a folder is what a killed process left: no link takes a day.
_STALE = 24 * 3600
#: Of its name, behind that of the output.
_LETTERS = string.ascii_lowercase + string.digits
_COUNT = 8
#: Bytes of a name, in the file systems of Linux.
_LONGEST = 255


@contextmanager
def folder_beside(output: Path) -> Iterator[Path]:
    """A folder on the file system of ``output``, so that moving a file there is atomic.

    It is removed at the end, whatever happens; a process that is killed leaves its folder, whose
    name begins with ``.NAME.``, to the next one that writes ``output`` a day later or more.
    """
    prefix = f".{_shortened(output.name)}."
    for old in output.parent.glob(f"{_quoted(prefix)}{'?' * _COUNT}"):
        if old.is_dir() and not old.is_symlink() and time.time() - old.stat().st_mtime > _STALE:
            shutil.rmtree(old, ignore_errors=True)
    # Named before it is there: no signal finds a folder that nobody knows of yet.
    folder = output.with_name(prefix + "".join(secrets.choice(_LETTERS) for _ in range(_COUNT)))
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _shortened(name: str) -> str:
    """As much of a name's beginning as leaves room for the dots and letters around it."""
    while len(os.fsencode(name)) > _LONGEST - len("..") - _COUNT:
        name = name[:-1]
    return name


def _quoted(name: str) -> str:
    """A name as a pattern that matches nothing else."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
