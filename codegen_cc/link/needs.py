"""What the tool chain is to know of a kernel library: which files its functions come from."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

from codegen_cc.errors import LibraryError


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

    def __post_init__(self) -> None:
        """Take texts as paths. Raises ``LibraryError`` for what is no tuple of either."""
        for name in (field.name for field in fields(self)):
            given = getattr(self, name)
            path = name not in ("headers", "cflags")
            kind = str | os.PathLike if path else str
            if isinstance(given, str | os.PathLike) or not isinstance(given, Iterable):
                raise LibraryError(f"Link: {name} is {given!r}; need a tuple of such")
            for each in given:
                if not isinstance(each, kind):
                    need = "paths" if path else "texts"
                    raise LibraryError(f"Link: {each!r} among the {name}; need {need}")
            object.__setattr__(self, name, tuple(Path(each) if path else each for each in given))


class Linked(Protocol):
    """As much of a kernel library (``codegen_cc.libraries.interface``) as linking needs."""

    name: str

    def link(self) -> Link:
        """Headers, sources and files that the generated code needs."""
