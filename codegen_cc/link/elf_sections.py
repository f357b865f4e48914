"""Sections of an ELF file, as its header says (System V ABI, chapter 4), in a file that may lie."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

_HEADER = 64
_SECTION = 64
_NOTHING_IN_FILE = 8  # SHT_NOBITS
_BLOCK = 1 << 18


class ElfError(ValueError):
    """The file is no 64-bit ELF file, is cut off, or names places that it does not have."""


@dataclass(frozen=True)
class Section:
    """Name and place of a section's bytes in the file."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class Elf:
    """An open file, its length, its ``e_machine`` and its sections."""

    file: BinaryIO
    length: int
    machine: int
    sections: tuple[Section, ...]

    def named(self, name: str) -> Section | None:
        """The section of a name, or None."""
        return next((section for section in self.sections if section.name == name), None)

    def content(self, section: Section) -> bytes:
        """The bytes of a section."""
        self.file.seek(section.offset)
        return self.file.read(section.size)

    def blocks(self, begin: int, end: int) -> Iterator[bytes]:
        """The bytes of the file from ``begin`` to before ``end``, piece by piece."""
        self.file.seek(begin)
        while begin < end and (block := self.file.read(min(_BLOCK, end - begin))):
            begin += len(block)
            yield block


def read_sections(file: BinaryIO) -> Elf:
    """Read the header and the section headers. Raises ``ElfError``."""
    length = file.seek(0, 2)
    file.seek(0)
    header = file.read(_HEADER)
    if len(header) < _HEADER or header[:5] != b"\x7fELF\x02" or header[5] not in (1, 2):
        raise ElfError("it is not a 64-bit ELF library")
    order = "<" if header[5] == 1 else ">"
    (machine,) = struct.unpack_from(f"{order}H", header, 18)
    (offset,) = struct.unpack_from(f"{order}Q", header, 40)
    entry, count, names = struct.unpack_from(f"{order}HHH", header, 58)
    if count == 0:
        return Elf(file, length, machine, ())
    if entry != _SECTION or names >= count:
        raise ElfError("it is damaged: its header does not fit its sections")
    # The section headers are the last thing in a file that a linker wrote.
    if length < (need := offset + entry * count):
        raise ElfError(f"it is cut off, {length} of {need} bytes")
    file.seek(offset)
    table = file.read(entry * count)
    rows = []
    for at in range(0, len(table), entry):
        name, kind = struct.unpack_from(f"{order}II", table, at)
        place, size = struct.unpack_from(f"{order}QQ", table, at + 24)
        size = 0 if kind in (0, _NOTHING_IN_FILE) else size
        if size and place + size > length:
            raise ElfError("it is damaged or cut off: it has sections past its end")
        rows.append((name, place, size))
    _, place, size = rows[names]
    file.seek(place)
    texts = file.read(size)
    return Elf(file, length, machine, tuple(Section(_text(texts, at), p, s) for at, p, s in rows))


def _text(texts: bytes, at: int) -> str:
    return texts[at : texts.find(b"\0", at)].decode("ascii", "replace")
