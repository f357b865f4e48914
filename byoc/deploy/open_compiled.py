"""Open a library: one that fits this machine and this TVM, and finds here what it needs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from byoc.deploy.compiled_file import read_compiled, require_this_machine
from byoc.deploy.metadata import Metadata
from byoc.deploy.tvm_runtime import load_extras, load_runtime, require_functions, runtime_version
from byoc.errors import LoadError

if TYPE_CHECKING:
    import tvm_ffi

#: Device, inode and time of change of the file that a path was first opened with.
_opened: dict[Path, tuple[int, int, int]] = {}


def open_compiled(path: Path) -> tuple[tvm_ffi.Module, Metadata]:
    """The library as a module, and what it says of itself. Raises ``LoadError``."""
    metadata = require_fitting(path)
    with _naming(path):
        for needed in metadata.runtime:
            require_functions(needed.name, needed.functions)
        if metadata.form == "plain":  # it may need any of them
            load_extras()
    try:
        str(path.resolve()).encode()
    except UnicodeEncodeError as error:
        raise LoadError(
            f"cannot load {path}: TVM's loader reads paths as UTF-8, which this is not; rename it"
        ) from error
    try:
        return _open(path.resolve()), metadata
    except Exception as error:
        raise LoadError(f"cannot load {path}: {first_line(error)}") from error


def require_fitting(path: Path) -> Metadata:
    """The metadata of a library that fits this machine and this TVM, whose runtime is loaded.

    The library itself is not. Raises ``LoadError``.
    """
    file = read_compiled(path)
    require_this_machine(file, None)
    metadata = file.metadata()
    require_this_machine(file, metadata)
    if metadata.form not in ("tvm", "plain"):
        raise LoadError(
            f"cannot load {path}: it is in the {metadata.form} form, with a C interface of its own;"
            " compile the model without --emit for this"
        )
    load_runtime()
    _require_same_tvm(path, metadata)
    return metadata


def _require_same_tvm(path: Path, metadata: Metadata) -> None:
    """Refuse a library of another binary interface: versions that differ before the last part."""
    made = tuple(metadata.versions.get(name, "") for name in ("tvm", "tvm_ffi"))
    here = runtime_version()
    if not all(made) or [_series(v) for v in made] == [_series(v) for v in here]:
        return
    raise LoadError(
        f"cannot load {path}: it was compiled with TVM {made[0]} and FFI {made[1]}, and this is TVM"
        f" {here[0]} with FFI {here[1]}; compile the model again, or install apache-tvm=={made[0]}"
    )


def _series(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


def _open(path: Path) -> tvm_ffi.Module:
    """Load the library that is at a path now.

    The dynamic linker knows libraries by name: asked again for one that was replaced meanwhile, it
    returns the old one. A replaced file is therefore opened by a name of its own.
    """
    import tvm_ffi

    status = path.stat()
    identity = (status.st_dev, status.st_ino, status.st_mtime_ns)
    if _opened.setdefault(path, identity) == identity:
        return tvm_ffi.load_module(str(path))
    with tempfile.TemporaryDirectory(prefix="byoc_") as folder:
        alias = Path(folder, path.name)
        alias.symlink_to(path)
        return tvm_ffi.load_module(str(alias))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Say of what is missing which library needs it."""
    try:
        yield
    except LoadError as error:
        raise LoadError(f"cannot load {path}: {error}") from error


def first_line(error: Exception) -> str:
    """What another package says, without what follows in later lines."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
