"""What the command line may do to its own process, and a library may not do to its user's."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
from collections.abc import Iterator

_STDERR = 2
_M_MMAP_THRESHOLD = -3
_LARGE_BLOCK = 1 << 20


def import_without_torch(name: str) -> None:
    """Import ``tvm`` or ``tvm_ffi`` as if PyTorch were not there; later imports find it again.

    TVM's FFI imports PyTorch wherever that is installed: a second and 200 MB that no verb needs.
    """
    if "torch" in sys.modules:
        importlib.import_module(name)
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        importlib.import_module(name)
    finally:
        del sys.modules["torch"]


@contextlib.contextmanager
def native_messages_dropped() -> Iterator[None]:
    """Drop what compiled code writes to standard error, such as TVM's warnings; Python's stays.

    What fails there is raised as well, and its message comes with the exception.
    """
    sys.stderr.flush()
    try:
        terminal = os.dup(_STDERR)
    except OSError:  # closed: nothing is shown anyway
        yield
        return
    own, before = None, sys.stderr
    if _is_standard_error(before):
        own = os.fdopen(os.dup(terminal), "w", 1, encoding=before.encoding, errors=before.errors)
        sys.stderr = own
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), _STDERR)
    try:
        yield
    finally:
        if own is not None:
            sys.stderr = before
            own.close()
        os.dup2(terminal, _STDERR)
        os.close(terminal)


def _is_standard_error(stream: object) -> bool:
    try:
        return stream.fileno() == _STDERR
    except (AttributeError, OSError, ValueError):  # a test's, or none
        return False


def give_large_blocks_back() -> None:
    """Let the C library return every freed block of a megabyte or more to the system at once.

    Left alone, glibc keeps ever larger blocks for reuse once it has seen one freed: 8 MB more for
    ResNet-50.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
