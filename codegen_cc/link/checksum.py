"""Checksums inside a compiled library, of all that is loaded with care and of all there is.

Code with a wrong bit ends the process that runs it, or even the one that loads it, so whoever loads
a library checks everything but the packed weights, which are most of a large file.  A wrong bit in
those is a wrong number, which the second sum finds.  The final link writes the file, so the
compiler leaves a place for the sums, a section of its own, and fills it in afterwards.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from codegen_cc.link.elf_sections import Elf, ElfError, Section, read_sections
from codegen_cc.link.embedded_text import CHECKSUM_MARK, CHECKSUM_SECTION, WEIGHTS_SECTION

#: The mark, the length of the file, the CRC-32 without and with the weights; little-endian. Sums
#: of 0 bytes stand in a library that nobody filled in, such as one of plain ``export_library``.
_FORM = "<8sQII"
_SIZE = struct.calcsize(_FORM)


def seal(path: Path) -> None:
    """Fill in the sums of a library that has a place for them. Raises ``ElfError``."""
    with path.open("r+b") as file:
        elf = read_sections(file)
        place = _place(elf)
        if place is None:
            raise ElfError(f"it has no section {CHECKSUM_SECTION}")
        sums = (_sum(elf, place, weights) for weights in (False, True))
        text = struct.pack(_FORM, CHECKSUM_MARK, elf.length, *sums)
        file.seek(place.offset)
        file.write(text)


def damage(elf: Elf, weights: bool = False) -> str | None:
    """What is wrong with a library by its sums; None where they hold, or where it has none.

    With ``weights`` these are checked as well.
    """
    place = _place(elf)
    if place is None or not is_sealed(elf):
        return None
    mark, length, rest, whole = struct.unpack(_FORM, elf.content(place))
    if mark != CHECKSUM_MARK or length != elf.length:
        return f"it has {elf.length} bytes where it had {length}"
    if _sum(elf, place, weights) != (whole if weights else rest):
        return "its checksum is another"
    return None


def is_sealed(elf: Elf) -> bool:
    """Whether a library has sums."""
    place = _place(elf)
    return place is not None and any(elf.content(place)[len(CHECKSUM_MARK) :])


def _place(elf: Elf) -> Section | None:
    section = elf.named(CHECKSUM_SECTION)
    if section is not None and section.size != _SIZE:
        raise ElfError(f"it is damaged: its section {CHECKSUM_SECTION} has {section.size} bytes")
    return section


def _sum(elf: Elf, place: Section, weights: bool) -> int:
    """CRC-32 of the file without its sums, and without the weights unless they are wanted."""
    left_out = [place]
    if not weights:
        names = (WEIGHTS_SECTION, ".lrodata")  # the second where they are far (object_file.py)
        left_out += [section for section in elf.sections if section.name in names]
    total, begin = 0, 0
    for section in sorted(left_out, key=lambda section: section.offset):
        for block in elf.blocks(begin, section.offset):
            total = zlib.crc32(block, total)
        begin = max(begin, section.offset + section.size)
    for block in elf.blocks(begin, elf.length):
        total = zlib.crc32(block, total)
    return total
