"""Compiled models as files: what they are for and what they say of themselves, without loading.

Loading one runs code of it; one for another machine cannot be loaded at all, and the dynamic
linker does not say why.  So the file is read first: its checksums, and the section with the
metadata.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from byoc.deploy.metadata import Metadata
from byoc.deploy.plain_file import plain_metadata
from byoc.errors import LoadError
from codegen_cc.link.checksum import damage, is_sealed
from codegen_cc.link.elf_sections import Elf, ElfError, read_sections
from codegen_cc.link.embedded_text import METADATA_SECTION
from codegen_cc.target import ELF_MACHINES, cpu_flags

#: Architectures by e_machine of the ELF header.
_NAMES = {number: name for name, number in ELF_MACHINES.items()}
_REMEDY = "copy it again, or compile the model again"


@dataclass(frozen=True)
class CompiledFile:
    """A compiled model on disk: its architecture, and the text of its metadata if it has any."""

    path: Path
    machine: str
    text: str | None

    def metadata(self) -> Metadata:
        """Its metadata; without any, what can be read of its function ``main``.

        Raises ``LoadError`` where it is no model, or its metadata have another format version.
        """
        if self.text is None:
            return plain_metadata(self.path)
        try:
            return Metadata.from_json(self.text)
        except ValueError as error:
            raise LoadError(f"cannot read {self.path}: {error}") from error


def read_compiled(path: Path) -> CompiledFile:
    """Read a library's header and metadata, and check all of it but its weights.

    Raises ``LoadError`` where the file is missing, no 64-bit ELF file, cut off or damaged, which
    would end the process that loads it.
    """
    with _open(path) as elf:
        if (problem := damage(elf)) is not None:
            raise LoadError(f"cannot load {path}: it is damaged: {problem}; {_REMEDY}")
        section = elf.named(METADATA_SECTION)
        text = None
        if section is not None:
            text = elf.content(section).rstrip(b"\0").decode("utf-8", "replace")
    return CompiledFile(path, _NAMES.get(elf.machine, f"ELF machine {elf.machine}"), text)


def whole_file_problem(path: Path) -> str | None:
    """What is wrong with a library's bytes, weights and all, or None.

    Raises ``LoadError`` for what is no library.
    """
    with _open(path) as elf:
        if not is_sealed(elf):
            return f"{path} has no checksum; byoc.compile writes one, TVM's exporter does not"
        problem = damage(elf, weights=True)
    return None if problem is None else f"{path} is damaged: {problem}; {_REMEDY}"


@contextmanager
def _open(path: Path) -> Iterator[Elf]:
    if path.is_dir():
        raise LoadError(f"cannot load {path}: it is a folder; give the library in it")
    if not path.is_file():
        why = "it is no plain file" if path.exists() else "no such file"
        raise LoadError(f"cannot load {path}: {why}")
    try:
        opened = path.open("rb")
    except OSError as error:
        raise LoadError(f"cannot load {path}: {error.strerror}") from error
    with opened as file:
        try:
            yield read_sections(file)
        except ElfError as error:
            raise LoadError(f"cannot load {path}: {error}") from error


def require_this_machine(file: CompiledFile, metadata: Metadata | None) -> None:
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
