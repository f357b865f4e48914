"""Texts inside compiled libraries, as C that nothing in the text can escape from."""

from __future__ import annotations

#: The section with a library's metadata: JSON in UTF-8, ended by a zero. As its name is a C
#: identifier and its own, linkers keep it apart, and it can be found in the file of the library.
METADATA_SECTION = "byoc_metadata"

#: The section with a library's checksums (``codegen_cc.link.checksum``), what it begins with, and
#: the bytes that it has; and the section with packed weights, which the linker keeps apart as well.
CHECKSUM_SECTION, CHECKSUM_MARK, CHECKSUM_BYTES = "byoc_checksum", b"byocsum1", 24
WEIGHTS_SECTION = "ext_weights"

#: Bytes in a line of C.
_ROW = 80

#: Bytes that stand for themselves in a string of C; the others are written in octal.
_PLAIN = frozenset(
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-+*/.,:;=()[]{}<>@#&|!~^"
)


def c_bytes(name: str, text: str, section: str | None = None) -> str:
    """C text of a constant array ``name``: ``text`` in UTF-8, and a zero.

    Strings, as a compiler takes four times as long to read numbers.
    """
    data = text.encode("utf-8")
    rows = (data[i : i + _ROW] for i in range(0, len(data), _ROW))
    body = "\n  ".join(f'"{_quoted(row)}"' for row in rows) or '""'
    place = f'__attribute__((section("{section}"), used)) ' if section else ""
    return f"{place}static const unsigned char {name}[] =\n  {body};\n"


def _quoted(data: bytes) -> str:
    """Always three digits, so that a digit that follows is none of them."""
    return "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in data)


def c_checksum() -> str:
    """C text of the place for a library's checksums, which are filled in when it is linked."""
    data = CHECKSUM_MARK.ljust(CHECKSUM_BYTES, b"\0")
    numbers = ", ".join(f"0x{byte:02x}" for byte in data)
    place = f'__attribute__((section("{CHECKSUM_SECTION}"), used))'
    return f"{place} static const unsigned char checksum[] = {{\n  {numbers}}};\n"
