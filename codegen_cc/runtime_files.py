"""Where the installed kernel runtime is: headers, archive, adapters."""

from __future__ import annotations

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
