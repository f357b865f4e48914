"""What the tool chain is to know of a kernel library: which files its functions come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Link:
    """What generated code needs from a library: to compile, to link, and when it runs.

    ``headers`` are included by generated code (``my_library.h``; found in ``include_dirs``).
    ``sources`` are C files that are compiled with ``cflags`` beside the generated code.
    ``archives``, ``.a`` or ``.o`` files, are linked in; all symbols but those of packed functions
    (``__tvm_ffi_*``) become local.
    ``shared`` libraries are not linked but opened when a region that uses them runs first: a file
    of that name beside the model, in a folder of ``$BYOC_LIBRARY_PATH``, at this path, or where the
    system looks.  A missing file or function is an error of that call, not of loading the model.
    """

    headers: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    sources: tuple[Path, ...] = ()
    archives: tuple[Path, ...] = ()
    shared: tuple[Path, ...] = ()
    cflags: tuple[str, ...] = ()


class Linked(Protocol):
    """As much of a kernel library (``codegen_cc.libraries.interface``) as linking needs."""

    name: str

    def link(self) -> Link:
        """Headers, sources and files that the generated code needs."""
