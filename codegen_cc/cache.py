"""What is kept from one run to the next, and how it is kept small.

The cache is a folder with folders of entries, files and folders that can all be made again:
libraries of ``torch.compile``, networks of the zoo and the corpus; and ``kernels-<triple>-<key>``,
each of them an entry.  The tuning database, which lies there as well, is none.  Whoever keeps an
entry makes room for it, and whoever uses one says so.
"""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from codegen_cc.errors import CodegenError

#: The variable that says how many gigabytes entries may have, and how many without it.
LIMIT = "BYOC_CACHE_LIMIT"
_GIGABYTES = 5.0

#: What was used so many seconds ago may be in use, and stays whatever the limit is.
_RECENT = 600

#: How names of entries in the cache itself begin; other folders hold entries.
_KERNELS = "kernels-"


@dataclass(frozen=True)
class Entry:
    """A file or folder of the cache: its size, and when it was last used or made."""

    path: Path
    bytes: int
    used: float


def cache_folder() -> Path:
    """Where results are kept from one run to the next: ``$XDG_CACHE_HOME/byoc``, else below ~."""
    # An empty or a relative one is to be ignored, says the XDG specification.
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "byoc"


def cache_limit() -> int:
    """How many bytes entries may have. Raises ``CodegenError`` for a variable that is no number."""
    text = os.environ.get(LIMIT) or str(_GIGABYTES)
    try:
        gigabytes = float(text)
    except ValueError:
        gigabytes = math.nan
    if not 0 <= gigabytes < math.inf:
        raise CodegenError(f"{LIMIT} is {text!r}; need gigabytes, such as {_GIGABYTES:g}")
    return int(gigabytes * 1e9)


def used(path: Path) -> None:
    """Say that an entry was used just now."""
    with suppress(OSError):  # of a cache that others keep
        os.utime(path)


def entries() -> list[Entry]:
    """All entries, in no order; what other processes are writing is not among them."""
    found = []
    for path in _paths():
        with suppress(OSError):  # gone meanwhile
            parts = [path, *path.rglob("*")] if path.is_dir() else [path]
            statuses = [part.stat() for part in parts]
            size = sum(status.st_blocks for status in statuses) * 512
            found.append(Entry(path, size, max(status.st_mtime for status in statuses)))
    return found


def _paths() -> Iterator[Path]:
    for path in _visible(cache_folder()):
        if path.name.startswith(_KERNELS):
            if path.is_dir():  # the others are locks
                yield path
        elif path.is_dir():
            yield from _visible(path)


def _visible(folder: Path) -> list[Path]:
    """What a folder holds, but for unfinished things, whose names begin with a dot."""
    with suppress(OSError):
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    return []


def make_room() -> None:
    """Remove the entries that were not used for the longest time, until the limit is kept.

    Those of the last ten minutes stay, and another process that removes does it for all.  Raises
    ``CodegenError`` for a limit that is no number.
    """
    limit, since = cache_limit(), time.time() - _RECENT
    known = entries()
    total = sum(entry.bytes for entry in known)
    if total <= limit:
        return
    with _alone() as is_alone:
        for entry in sorted(known, key=lambda entry: entry.used) if is_alone else ():
            if total <= limit or entry.used > since:
                return
            _remove(entry.path)
            total -= entry.bytes


def clear() -> int:
    """Remove all entries, whatever uses them; how many there were."""
    known = entries()
    for entry in known:
        _remove(entry.path)
    return len(known)


def _remove(path: Path) -> None:
    """Remove an entry; libraries that are loaded stay in memory."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            # Gone at once and whole, for whoever looks for it meanwhile.
            hidden = path.with_name(f".{path.name}.{os.getpid()}")
            path.rename(hidden)
            shutil.rmtree(hidden)
        else:
            path.unlink()


@contextmanager
def _alone() -> Iterator[bool]:
    """Whether no other process removes entries meanwhile: a lock on the folder ``.room``."""
    place = cache_folder() / ".room"
    place.mkdir(exist_ok=True)
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_alone = True
    except BlockingIOError:
        is_alone = False
    try:
        yield is_alone
    finally:
        os.close(descriptor)
