"""What a module was imported from, by content: SHA-256 of the model's files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from byoc.deploy.metadata import SourceFile

_BLOCK = 1 << 20


def hash_files(paths: Iterable[Path]) -> tuple[SourceFile, ...]:
    """Name and hash of each file, as ``sha256sum`` prints them."""
    return tuple(SourceFile(path.name, hash_of(path)) for path in paths)


def hash_content(content: bytes) -> SourceFile:
    """The hash of a model in memory, without a name."""
    return SourceFile("", hashlib.sha256(content).hexdigest())


def hash_of(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
