"""A relocatable ELF object of read-only data, written as the data come.

An assembler and ``ld -r`` would each copy hundreds of megabytes of weights; an object with one
section of data needs neither.  The layout is that of the System V ABI, chapter 4: the header, the
data, the symbol table, the tables of names, and the section headers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from codegen_cc.errors import ToolchainError

#: Bytes; the data begin behind the 64 bytes of the header, and keep their offsets' alignment.
ALIGNMENT = 64

_HEADER, _SECTION, _SYMBOL = 64, 64, 24
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_ALLOC = 2
_GLOBAL_OBJECT = 1 << 4 | 1
_HIDDEN = 2
#: From so many bytes on, the data go where x86-64's linkers put what code may not reach with the 31
#: bits of its addresses: behind everything else, in a section .lrodata with a flag. Code finds them
#: through the global offset table.
FAR = 1 << 30
_X86_64, _FAR_FLAG = 62, 1 << 28
#: Where the header of another object tells its class and byte order, its machine and its flags.
_IDENT, _MACHINE, _FLAGS = slice(0, 16), slice(18, 20), slice(48, 52)


class ObjectFile:
    """Data at given offsets of one section, and symbols in it.  The file is made at first use."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)

    def write(self, offset: int, content: memoryview) -> None:
        """Place bytes in the section."""
        try:
            with self._path.open("r+b" if self._path.exists() else "wb") as file:
                file.seek(_HEADER + offset)
                file.write(content)
        except OSError as error:  # a folder for what is temporary may be small
            raise ToolchainError(
                f"cannot write weights into {self._path.parent}: {error.strerror}; let TMPDIR be a"
                " folder with more room"
            ) from error

    def finish(
        self, section: str, nbytes: int, symbols: Sequence[tuple[str, int, int]], like: Path
    ) -> Path:
        """Write the tables around ``nbytes`` of data.

        ``symbols`` are names with offset and size; they are global and hidden.  The machine is that
        of the object file ``like``.  Raises ``ToolchainError`` where that is no 64-bit ELF file.
        """
        with like.open("rb") as file:
            model = file.read(_HEADER)
        if model[:5] != b"\x7fELF\x02":
            raise ToolchainError(
                f"{like.name} is no 64-bit ELF object; weights are stored in that format alone, "
                "use a compiler for Linux"
            )
        order = "<" if model[5] == 1 else ">"
        (machine,) = struct.unpack(order + "H", model[_MACHINE])
        access = _ALLOC
        if machine == _X86_64 and nbytes >= FAR:
            section, access = f".lrodata.{section}", _ALLOC | _FAR_FLAG
        # Without .note.GNU-stack the linker would mark the whole library executable-stack.
        names = ("", section, ".note.GNU-stack", ".symtab", ".strtab", ".shstrtab")
        section_names, section_at = _strings(names)
        symbol_names, symbol_at = _strings(["", *(name for name, _, _ in symbols)])
        entries = [bytes(_SYMBOL)]
        for at, (_, offset, size) in zip(symbol_at[1:], symbols, strict=True):
            entries.append(
                struct.pack(order + "IBBHQQ", at, _GLOBAL_OBJECT, _HIDDEN, 1, offset, size)
            )
        tables = [b"".join(entries), symbol_names, section_names]
        places, position = [], -(-(_HEADER + nbytes) // ALIGNMENT) * ALIGNMENT
        with self._path.open("r+b") as file:
            for table in tables:
                places.append(position)
                file.seek(position)
                file.write(table)
                position = -(-(position + len(table)) // 8) * 8
            # Type, flags, offset, size, linked section, its first global, alignment, entry size.
            rows = [
                (0, 0, 0, 0, 0, 0, 0, 0),
                (_PROGBITS, access, _HEADER, nbytes, 0, 0, ALIGNMENT, 0),
                (_PROGBITS, 0, _HEADER, 0, 0, 0, 1, 0),
                (_SYMTAB, 0, places[0], len(tables[0]), 4, 1, 8, _SYMBOL),
                (_STRTAB, 0, places[1], len(tables[1]), 0, 0, 1, 0),
                (_STRTAB, 0, places[2], len(tables[2]), 0, 0, 1, 0),
            ]
            file.seek(position)
            for at, (type_, flags, *rest) in zip(section_at, rows, strict=True):
                file.write(struct.pack(order + "IIQQQQIIQQ", at, type_, flags, 0, *rest))
            file.seek(0)
            file.write(_header(model, order, position, len(rows)))
        return self._path


def _header(model: bytes, order: str, sections: int, count: int) -> bytes:
    relocatable, version = 1, 1
    machine, flags = (
        struct.unpack(order + c, model[s])[0] for c, s in (("H", _MACHINE), ("I", _FLAGS))
    )
    return model[_IDENT] + struct.pack(
        order + "HHIQQQIHHHHHH",
        *(relocatable, machine, version, 0, 0, sections, flags),
        *(_HEADER, 0, 0, _SECTION, count, count - 1),
    )


def _strings(names: Sequence[str]) -> tuple[bytes, list[int]]:
    """A table of names, each ended by a zero, and where each begins."""
    table, places = bytearray(), []
    for name in names:
        places.append(len(table))
        table += name.encode("ascii") + b"\0"
    return bytes(table), places
