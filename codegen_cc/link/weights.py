"""Constants of a region, packed or as they are, each stored once.

Equal contents get one symbol, at 64-byte boundaries of one section of an object file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from codegen_cc.link.embedded_text import WEIGHTS_SECTION
from codegen_cc.link.object_file import ALIGNMENT, ObjectFile

#: Bytes of object files from which on a library is laid out for pages of 2 MB, which costs it up to
#: three such pages.
HUGE = 1 << 28
#: Bytes that are written at once where a system is to cache a file in large pages.
_PIECE = 1 << 23


def page_flags(objects: Iterable[Path]) -> tuple[str, ...]:
    """What a linker is told of these objects: where there are many weights, how long pages are.

    Where addresses and places in the file agree modulo 2 MB, a system whose page cache has large
    pages maps them as such. To read 556 MB of weights of 8 bits takes 4 % less time so, as fewer
    addresses have to be looked up (a step of a decoder of 0.5 G, Zen 5 in a virtual machine, ext4).
    """
    many = sum(path.stat().st_size for path in objects) >= HUGE
    return ("-Wl,-z,max-page-size=0x200000",) if many else ()


def write_in_large_pieces(library: Path) -> None:
    """Write a finished library anew where it has many weights (``HUGE``), 8 MB at a time.

    A system caches a file in pages as long as what was written at once, and linkers write little at
    a time: a third of such a library was mapped in pages of 2 MB, all of it afterwards. Reading its
    weights took 10 % longer than other memory, and as long afterwards (Zen 4, Linux 6.18, ext4).
    """
    if library.stat().st_size < HUGE:
        return
    anew = library.with_name(f"{library.name}.anew")
    try:
        with library.open("rb") as given, anew.open("xb", buffering=0) as file:
            while piece := given.read(_PIECE):
                while piece:  # a write may take less than it is given
                    piece = piece[file.write(piece) :]
        anew.chmod(library.stat().st_mode)
        os.replace(anew, library)
    finally:
        anew.unlink(missing_ok=True)


@dataclass(frozen=True)
class Weight:
    """One stored constant: its C symbol, and where it lies in the blob (bytes)."""

    symbol: str
    offset: int
    nbytes: int


class WeightBlob:
    """Packed constants, each written to an object file as it comes; equal contents get one symbol.

    Nothing is kept in memory.  Without ``path`` nothing is written either: for plans alone.
    """

    def __init__(self, prefix: str, path: Path | None = None) -> None:
        self.prefix = prefix
        self.weights: list[Weight] = []
        self.nbytes = 0
        self._object = ObjectFile(path) if path is not None else None
        self._known: dict[bytes, Weight] = {}

    def add(self, array: np.ndarray) -> Weight:
        """Store an array in C order, or find the equal one that is stored already."""
        array = np.ascontiguousarray(array)
        content = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
        # SHA-256 because CPUs have instructions for it: twice as fast as BLAKE2.
        digest = hashlib.sha256(array.dtype.str.encode())
        digest.update(content)
        key = digest.digest()
        if key not in self._known:
            weight = Weight(f"{self.prefix}_w{len(self.weights)}", self.nbytes, array.nbytes)
            if self._object is not None:
                self._object.write(weight.offset, content)
            self.weights.append(weight)
            self._known[key] = weight
            self.nbytes += -(-max(array.nbytes, 1) // ALIGNMENT) * ALIGNMENT
        return self._known[key]

    def finish(self, like: Path) -> Path | None:
        """Complete the object file for the machine that the object ``like`` is for.

        Its symbols are hidden: they stay inside the library that it is linked into. None, and no
        file, where there are no weights.
        """
        if self._object is None or not self.weights:
            return None
        symbols = [(weight.symbol, weight.offset, weight.nbytes) for weight in self.weights]
        return self._object.finish(WEIGHTS_SECTION, self.nbytes, symbols, like)
