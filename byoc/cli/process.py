"""What the command line may do to its own process, and a library may not do to its user's."""

from __future__ import annotations

import ctypes
import importlib
import sys

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


def give_large_blocks_back() -> None:
    """Let the C library return every freed block of a megabyte or more to the system at once.

    Left alone, glibc keeps ever larger blocks for reuse once it has seen one freed: 8 MB more for
    ResNet-50.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
