"""Weights of a library in large pages: those that are mapped in small ones are moved to memory.

A call that reads many weights once, as a step of a decoder does, waits for addresses to be looked
up where pages have 4 KB.  Whether the system maps a file in pages of 2 MB is chance: its cache has
to hold it so.  ``PAGEMAP_SCAN`` (Documentation/admin-guide/mm/pagemap.rst of Linux) tells which
parts have been read, and in which pages they are; those in small ones are copied to anonymous
memory, for which large pages can be asked, and that takes the place of the file's (``mremap``).
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from byoc.errors import RunError

#: Bytes of a large page of x86-64 and 64-bit Arm.
LARGE = 2 << 20
#: A large page is worth its memory where this part of it has been read.
_WORTH = LARGE // 2
#: Bytes that are copied at once, and so are needed twice for a while.
_PIECE = 64 << 20

_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_NEED = "large pages of a library's weights need Linux 6.7 or newer with transparent large pages"
# asm-generic/mman-common.h, linux/mman.h and linux/fs.h of Linux
MADV_HUGEPAGE = 14
_PROT_READ, _PROT_WRITE = 1, 2
_MAP_PRIVATE, _MAP_ANONYMOUS = 0x02, 0x20
_MREMAP_MAYMOVE, _MREMAP_FIXED = 1, 2
_PAGEMAP_SCAN = 0xC0606610
_PAGE_IS_PRESENT, _PAGE_IS_HUGE = 1 << 3, 1 << 6
_REGIONS = 4096

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r--p \S+ ([0-9a-f]+):([0-9a-f]+) (\d+)")


class _Region(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("start", "end", "categories")]


class _Scan(ctypes.Structure):
    """``struct pm_scan_arg``."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            *("size", "flags", "start", "end", "walk_end", "vec", "vec_len", "max_pages"),
            *("category_inverted", "category_mask", "category_anyof_mask", "return_mask"),
        )
    ]


def enlarge(library: Path) -> int:
    """Move what was read of a loaded library's constants, in small pages, to large ones.

    Returns the bytes moved, which this process has for itself from now on; what other processes map
    stays theirs.  Calls in other threads may go on: the same bytes stay at the same addresses.
    Raises ``RunError`` where the system has no such pages, or too little memory; what was moved by
    then stays so.
    """
    if sys.platform != "linux" or not _THP.is_file() or "[never]" in _THP.read_text():
        raise RunError(_NEED)
    runs = [run for begin, end in _mappings(library) for run in _worth(begin, end)]
    for begin, end in runs:
        for at in range(begin, end, _PIECE):
            _move(at, min(at + _PIECE, end))
    return sum(end - begin for begin, end in runs)


def _mappings(library: Path) -> Iterator[tuple[int, int]]:
    """Where the file is mapped to be read alone."""
    try:
        status = library.stat()
    except OSError as error:
        raise RunError(f"{library} is not there any more: {error.strerror}") from error
    identity = (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").split("\n"):
        found = _MAPPING.match(line)
        if found and (int(found[3], 16), int(found[4], 16), int(found[5])) == identity:
            yield int(found[1], 16), int(found[2], 16)


def _worth(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Runs of whole large pages, half of which at least is there in small ones."""
    counts: dict[int, int] = {}
    for low, high in _small(begin, end):
        for page in range(low // LARGE, -(-high // LARGE)):
            part = min(high, (page + 1) * LARGE) - max(low, page * LARGE)
            counts[page] = counts.get(page, 0) + part
    whole = range(-(-begin // LARGE), end // LARGE)
    pages = [page for page in whole if counts.get(page, 0) >= _WORTH]
    for _, group in itertools.groupby(enumerate(pages), lambda pair: pair[1] - pair[0]):
        run = [page for _, page in group]
        yield run[0] * LARGE, (run[-1] + 1) * LARGE


def _small(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Ranges that this process has in pages that are not large."""
    regions = (_Region * _REGIONS)()
    scan = _Scan(
        size=ctypes.sizeof(_Scan),
        start=begin,
        end=end,
        vec=ctypes.addressof(regions),
        vec_len=_REGIONS,
        category_inverted=_PAGE_IS_HUGE,
        category_mask=_PAGE_IS_PRESENT | _PAGE_IS_HUGE,
        return_mask=_PAGE_IS_PRESENT,
    )
    with Path("/proc/self/pagemap").open("rb") as pagemap:
        while scan.start < end:
            try:
                found = fcntl.ioctl(pagemap, _PAGEMAP_SCAN, scan)
            except OSError as error:
                raise RunError(f"{_NEED}: {error.strerror}") from error
            yield from ((region.start, region.end) for region in regions[:found])
            scan.start = scan.walk_end


def _move(begin: int, end: int) -> None:
    """Let a copy in large pages take the place of [begin, end)."""
    system, size = c_library(), end - begin
    flags = _MAP_PRIVATE | _MAP_ANONYMOUS
    room = system.mmap(None, size + LARGE, _PROT_READ | _PROT_WRITE, flags, -1, 0)
    if room == ctypes.c_void_p(-1).value:
        raise RunError(f"no memory for {size >> 20} MB of weights in large pages")
    at = -(-room // LARGE) * LARGE
    system.madvise(at, size, MADV_HUGEPAGE)
    ctypes.memmove(at, begin, size)
    system.mprotect(at, size, _PROT_READ)
    moved = system.mremap(at, size, size, _MREMAP_MAYMOVE | _MREMAP_FIXED, begin)
    kept = 0 if moved == begin else size
    for low, high in ((room, at), (at, at + kept), (at + size, room + size + LARGE)):
        if low < high:
            system.munmap(low, high - low)
    if kept:
        raise RunError("the system does not move memory to where a library's weights are")


@cache
def c_library() -> ctypes.CDLL:
    """The C library, with the types of what is called."""
    system = ctypes.CDLL(None, use_errno=True)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    system.mmap.restype = system.mremap.restype = address
    system.mmap.argtypes = [address, size, number, number, number, ctypes.c_long]
    system.mremap.argtypes = [address, size, size, number, address]
    system.madvise.argtypes = system.mprotect.argtypes = [address, size, number]
    system.munmap.argtypes = [address, size]
    return system
