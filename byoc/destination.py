"""Places to write to, looked at before minutes of work; files that appear whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from byoc.errors import ByocError
from codegen_cc.unfinished import folder_beside


def require_folder_to_make(folder: Path, kind: type[ByocError]) -> None:
    """Raise ``kind`` where a folder, made with its parents if it is not there, takes no files."""
    place = folder
    while not _there(place, folder, kind) and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise kind(f"cannot write into {folder}: {place} is no folder")
    require_writable(place, folder, kind)


def require_file_to_write(
    file: Path, kind: type[ByocError], others: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Raise ``kind`` where a file cannot be written, or is a folder; its folder must exist.

    ``others`` are files that it must not be: those that are read, and other files to write.
    """
    if not _there(file.parent, file, kind):
        raise kind(f"cannot write {file}: there is no folder {file.parent}")
    if not file.parent.is_dir():
        raise kind(f"cannot write {file}: {file.parent} is no folder")
    if _there(file, file, kind) and file.is_dir():  # the former finds a name that is too long
        raise kind(f"cannot write {file}: it is a folder; give a file name")
    place = file.resolve()
    if any(Path(other).resolve() == place for other in others):
        raise kind(f"cannot write {file}: the command names it twice; give another file")
    require_writable(file.parent, file, kind)


def write_whole(file: Path, content: str | bytes, kind: type[ByocError]) -> None:
    """Write a file whole, or leave what is there; raises ``kind``."""
    with unfinished_file(file, kind) as unfinished:
        # Names of files need not be text, and a report names the model's.
        text = isinstance(content, str)
        unfinished.write_bytes(content.encode(errors="backslashreplace") if text else content)


@contextmanager
def unfinished_file(file: Path, kind: type[ByocError]) -> Iterator[Path]:
    """A path to write to, which becomes ``file`` where no error ends it; raises ``kind``.

    What is no regular file, such as ``/dev/stdout``, is that path itself.
    """
    try:
        if file.exists() and not file.is_file():
            yield file
            return
        place = file.resolve()  # where a link leads
        with folder_beside(place) as folder:
            yield folder / "content"
            os.replace(folder / "content", place)
    except OSError as error:
        raise kind(f"cannot write {file}: {error.strerror}") from error


def require_writable(folder: Path, wanted: Path, kind: type[ByocError]) -> None:
    """Raise ``kind`` where a folder takes no file: permissions, read-only, no space.

    Permissions alone tell nothing of a file system mounted read-only, so a file is written.
    """
    try:
        with tempfile.TemporaryFile(prefix=".byoc_", dir=folder) as file:
            file.write(b"?")
    except OSError as error:
        raise kind(
            f"cannot write {wanted}: {folder} takes no files ({error.strerror}); choose another"
            " folder"
        ) from error


def _there(path: Path, wanted: Path, kind: type[ByocError]) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise kind(f"cannot write {wanted}: {error.strerror}") from error
    return True
