"""Compiled libraries as files: what they are for and what they say of themselves, without loading.

Loading a library runs code of it; one for another machine cannot be loaded at all, and the dynamic
linker does not say why.  So the file is read first: the ELF header, the section headers and the
section with the metadata (System V ABI, chapter 4).
"""

from __future__ import annotations

import platform
import struct
from dataclasses import dataclass
from pathlib import Path

from byoc.deploy.metadata import Metadata
from byoc.errors import LoadError
from codegen_cc.embedded_text import METADATA_SECTION
from codegen_cc.target import ELF_MACHINES, cpu_flags

#: Architectures by e_machine of the ELF header.
_NAMES = {number: name for name, number in ELF_MACHINES.items()}
_HEADER = 64
_SECTION = 64


@dataclass(frozen=True)
class LibraryFile:
    """A library on disk: its architecture and the text of its metadata, None where it has none."""

    path: Path
    machine: str
    text: str | None

    def metadata(self) -> Metadata:
        """Its metadata. Raises ``LoadError`` where it has none, or of another format version."""
        if self.text is None:
            raise LoadError(
                f"cannot read {self.path}: it holds no names of inputs and outputs; compile it "
                "with byoc.compile, or run it with tvm.runtime.vm.VirtualMachine"
            )
        try:
            return Metadata.from_json(self.text)
        except ValueError as error:
            raise LoadError(f"cannot read {self.path}: {error}") from error


def read_library(path: Path) -> LibraryFile:
    """Read a library's header and metadata.

    Raises ``LoadError`` where the file is missing, no 64-bit ELF file, or cut off, which would end
    the process that loads it.
    """
    if not path.is_file():
        raise LoadError(f"cannot load {path}: no such file")
    with path.open("rb") as file:
        header = file.read(_HEADER)
        if len(header) < _HEADER or header[:5] != b"\x7fELF\x02":
            raise LoadError(f"cannot load {path}: it is not a 64-bit ELF library")
        order = "<" if header[5] == 1 else ">"
        (machine,) = struct.unpack_from(f"{order}H", header, 18)
        (offset,) = struct.unpack_from(f"{order}Q", header, 40)
        entry, count, names = struct.unpack_from(f"{order}HHH", header, 58)
        # The section headers are the last thing in a file that a linker wrote.
        length, need = path.stat().st_size, offset + entry * count
        if length < need:
            raise LoadError(f"cannot load {path}: it is cut off, {length} of {need} bytes")
        file.seek(offset)
        table = file.read(entry * count)

        def section(index: int) -> tuple[int, bytes]:
            at = index * entry
            name, place, size = (
                struct.unpack_from(f"{order}{kind}", table, at + where)[0]
                for kind, where in (("I", 0), ("Q", 24), ("Q", 32))
            )
            file.seek(place)
            return name, file.read(size)

        text = None
        if entry == _SECTION and names < count:
            strings = section(names)[1]
            wanted = METADATA_SECTION.encode() + b"\0"
            for index in range(count):
                (name,) = struct.unpack_from(f"{order}I", table, index * entry)
                if strings[name : name + len(wanted)] == wanted:
                    text = section(index)[1].rstrip(b"\0").decode("utf-8", "replace")
    return LibraryFile(path, _NAMES.get(machine, f"ELF machine {machine}"), text)


def require_this_machine(file: LibraryFile, metadata: Metadata | None) -> None:
    """Raise ``LoadError`` where a library is for another architecture or a newer CPU than ours."""
    here = platform.machine()
    if file.machine != here:
        raise LoadError(
            f"cannot load {file.path}: it is for {file.machine}, and this machine is {here}; "
            "compile the model for it with --target"
        )
    wanted = metadata.target if metadata is not None else None
    if wanted is None or not wanted.cpu_flags:
        return
    found = cpu_flags()
    missing = [flag for flag in wanted.cpu_flags if flag not in found]
    if found and missing:
        raise LoadError(
            f"cannot load {file.path}: it is for {wanted.name}, and this CPU lacks "
            f"{', '.join(missing)}; compile the model without --target, for any CPU"
        )
