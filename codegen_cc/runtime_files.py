"""Where the installed kernel runtime is, headers, archive, adapters, and what is kept beside it."""

from __future__ import annotations

import os
from pathlib import Path

from codegen_cc.errors import ToolchainError

RUNTIME = Path(__file__).resolve().parent / "_runtime"


def runtime_file(relative: str) -> Path:
    """A file of the installed kernel runtime. Raises ``ToolchainError`` where it is missing."""
    path = RUNTIME / relative
    if not path.exists():
        raise ToolchainError(
            f"{relative} of the kernel runtime is missing; reinstall the package, or run "
            "'make -C runtime install DEST=<codegen_cc>/_runtime' in a source tree"
        )
    return path


def cache_folder() -> Path:
    """Where results are kept from one run to the next: ``$XDG_CACHE_HOME/byoc``, else below ~."""
    # An empty or a relative one is to be ignored, says the XDG specification.
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "byoc"
