"""What object files, archives and shared libraries define and need, and names made local in them.

Symbol tables are read and written here (System V ABI, chapter 4; archives as ``ar`` writes them),
so that no program of binutils has to be on the machine.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from codegen_cc.errors import ToolchainError

_NAME = re.compile(r"[A-Za-z_][\w.$]*", re.ASCII)
_SYMTAB, _RELA, _DYNAMIC, _REL, _DYNSYM, _GROUP, _SHNDX = 2, 4, 6, 9, 11, 17, 18
_ADDRSIG = 0x6FFF4C03  # LLVM's list of symbols by their numbers, which may be dropped
_LOCAL, _GLOBAL, _WEAK = 0, 1, 2
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_SONAME = 14
_COMDAT = 1
_ARCHIVE, _THIN = b"!<arch>\n", b"!<thin>\n"
_MEMBER = 60


def _record(names: str, kinds: str) -> np.dtype:
    return np.dtype(list(zip(names.split(), kinds.split(), strict=True)))


_SECTION = _record(
    "name kind flags address offset size link info align entry", "u4 u4 u8 u8 u8 u8 u4 u4 u8 u8"
)
_SYMBOL = _record("name info other section value size", "u4 u1 u1 u2 u8 u8")
_ENTRY = _record("tag value", "i8 u8")
_RELOCATION = {
    _REL: _record("offset info", "u8 u8"),
    _RELA: _record("offset info addend", "u8 u8 i8"),
}


def undefined(*paths: Path) -> set[str]:
    """Names that the files use and none of them defines; weak ones, which may stay so, excluded.

    One of a version, such as ``pthread_create@GLIBC_2.17``, is given without it.
    """
    needed: set[str] = set()
    own: set[str] = set()
    for path in paths:
        for table in _tables(path, _SYMTAB):
            names, rows = table.named()
            missing = rows["section"] == _UNDEFINED
            weak = rows["info"] >> 4 == _WEAK
            strong = missing & (rows["info"] >> 4 != _LOCAL) & ~weak
            needed.update(_chosen(names, strong))
            own.update(_chosen(names, ~missing & (rows["info"] >> 4 != _LOCAL) | missing & weak))
    return {name.partition("@")[0] for name in needed - own}


def defined_functions(path: Path, dynamic: bool = False) -> set[str]:
    """Names of the global functions (and objects) of a file; of a shared library its exports."""
    found: set[str] = set()
    for table in _tables(path, _DYNSYM if dynamic else _SYMTAB):
        names, rows = table.named()
        binding = rows["info"] >> 4
        shared = (binding == _GLOBAL) | (binding == _WEAK)
        here = ~np.isin(rows["section"], (_UNDEFINED, _ABSOLUTE, _COMMON))
        found.update(_chosen(names, shared & here))
    return found


def soname(path: Path) -> str | None:
    """The name by which the dynamic linker knows a shared library, or None."""
    elf = _Elf.of(path, memoryview(path.read_bytes()))
    for section in elf.sections[elf.sections["kind"] == _DYNAMIC]:
        entries = elf.rows(section, _ENTRY)
        for value in entries["value"][entries["tag"] == _SONAME]:
            return _text(bytes(elf.part(elf.sections[section["link"]])), int(value))
    return None


def keep_global(path: Path, patterns: Sequence[str]) -> None:
    """Make all symbols of an object file local whose names match none of the patterns.

    What the file does not define stays as it is.  Local symbols come first in a table, so that
    others get new numbers, in relocations as well.  Raises ``ToolchainError``.
    """
    content = bytearray(path.read_bytes())
    elf = _Elf.of(path, memoryview(content))
    kinds = elf.sections["kind"]
    if _SHNDX in kinds:
        raise ToolchainError(f"{path.name} has more than 65,279 sections, which is too many")
    for index in np.flatnonzero(kinds == _SYMTAB):
        table = _Table(elf, elf.sections[index])
        names, rows = table.named()
        here = ~np.isin(rows["section"], (_UNDEFINED, _COMMON)) & (rows["info"] >> 4 != _LOCAL)
        goes = [
            at
            for at in np.flatnonzero(here)
            if not any(fnmatchcase(names[at], pattern) for pattern in patterns)
        ]
        rows["info"][goes] &= 0xF
        order = np.argsort(rows["info"] >> 4 != _LOCAL, kind="stable")
        numbers = np.empty(len(order), np.uint32)
        numbers[order] = np.arange(len(order))
        rows[:] = rows[order]
        elf.sections["info"][index] = int(np.count_nonzero(rows["info"] >> 4 == _LOCAL))
        elf.renumber(int(index), numbers, set(goes))
    path.write_bytes(content)


@dataclass(frozen=True)
class _Elf:
    """A 64-bit ELF file in memory, and its section headers as an array in that memory."""

    content: memoryview
    order: str
    sections: np.ndarray

    @classmethod
    def of(cls, path: Path, content: memoryview) -> _Elf:
        if len(content) < 64 or bytes(content[:5]) != b"\x7fELF\x02" or content[5] not in (1, 2):
            raise ToolchainError(f"{path} is no 64-bit ELF file")
        order = "<" if content[5] == 1 else ">"
        (offset,) = struct.unpack_from(f"{order}Q", content, 40)
        size, count = struct.unpack_from(f"{order}HH", content, 58)
        if (count and size != _SECTION.itemsize) or offset + count * size > len(content):
            raise ToolchainError(f"{path} is cut off or damaged")
        sections = np.frombuffer(
            content, _SECTION.newbyteorder(order), count, offset if count else 0
        )
        ends = sections["offset"] + np.where(sections["kind"] == 8, 0, sections["size"])
        if np.any(ends > len(content)) or np.any(sections["link"] >= count):
            raise ToolchainError(f"{path} is cut off or damaged")
        return cls(content, order, sections)

    def part(self, section: np.void) -> memoryview:
        begin = int(section["offset"])
        return self.content[begin : begin + int(section["size"])]

    def rows(self, section: np.void, kind: np.dtype) -> np.ndarray:
        count = int(section["size"]) // kind.itemsize
        return np.frombuffer(self.part(section), kind.newbyteorder(self.order), count)

    def renumber(self, table: int, numbers: np.ndarray, local: set[int]) -> None:
        """Write the new ``numbers`` of a table's symbols, of which some became local."""
        for index in np.flatnonzero(self.sections["link"] == table):
            section = self.sections[index]
            if section["kind"] in (_RELA, _REL):
                rows = self.rows(section, _RELOCATION[int(section["kind"])])
                symbols = numbers[rows["info"] >> 32].astype(np.uint64)
                rows["info"][:] = symbols << np.uint64(32) | rows["info"] & np.uint64(0xFFFFFFFF)
            elif section["kind"] == _GROUP:
                # Of groups of one name linkers keep the first, which is right for shared names.
                if int(section["info"]) in local:
                    self.rows(section, np.dtype("u4"))[0] &= ~np.uint32(_COMDAT)
                self.sections["info"][index] = numbers[section["info"]]
            elif section["kind"] == _ADDRSIG:
                self.sections["link"][index] = 0  # the mark of a list that is no longer true


@dataclass(frozen=True)
class _Table:
    """A symbol table."""

    elf: _Elf
    section: np.void

    def named(self) -> tuple[list[str], np.ndarray]:
        """All symbols' names, and their rows in the file's memory."""
        rows = self.elf.rows(self.section, _SYMBOL)
        texts = bytes(self.elf.part(self.elf.sections[self.section["link"]]))
        return [_text(texts, at) for at in rows["name"].tolist()], rows


def _mapped(path: Path) -> memoryview:
    """The bytes of a file, of which those that nobody looks at, such as weights, are not read."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _tables(path: Path, kind: int) -> Iterator[_Table]:
    """The symbol tables of a kind in a file, or in all objects of an archive."""
    content = _mapped(path)
    if bytes(content[:8]) == _THIN:
        raise ToolchainError(f"{path} is a thin archive; make one that holds its objects")
    parts = _members(path, content) if bytes(content[:8]) == _ARCHIVE else [content]
    for part in parts:
        elf = _Elf.of(path, part)
        for section in elf.sections[elf.sections["kind"] == kind]:
            yield _Table(elf, section)


def _members(path: Path, content: memoryview) -> Iterator[memoryview]:
    """The ELF files of an archive: not its index, nor its table of long names."""
    at = len(_ARCHIVE)
    while at + _MEMBER <= len(content):
        size = bytes(content[at + 48 : at + 58]).strip()
        if not size.isdigit() or at + _MEMBER + int(size) > len(content):
            raise ToolchainError(f"{path} is cut off or damaged")
        member = content[at + _MEMBER : at + _MEMBER + int(size)]
        if bytes(member[:4]) == b"\x7fELF":
            yield member
        at += _MEMBER + int(size) + int(size) % 2


def _chosen(names: list[str], which: np.ndarray) -> Iterator[str]:
    return (names[at] for at in np.flatnonzero(which) if _NAME.fullmatch(names[at]))


def _text(texts: bytes, at: int) -> str:
    return texts[at : max(texts.find(b"\0", at), at)].decode("utf-8", "replace")
