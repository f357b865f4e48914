"""What object files, archives and shared libraries define and need, as binutils say."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from codegen_cc.errors import ToolchainError
from codegen_cc.target import HOST

#: A line of ``nm -P``: a name (with a version in shared libraries), and its kind.
_SYMBOL = re.compile(r"^([A-Za-z_][\w.$]*)(?:@@?\S+)? ([A-Za-z])(?: |$)", re.ASCII)


def undefined(*paths: Path, nm: str = "") -> set[str]:
    """Names that the files use and none of them defines; weak ones, which may stay so, excluded.

    ``nm`` is the program of that name for the files' architecture, where it is another one.
    """
    needed: set[str] = set()
    own: set[str] = set()
    for path in paths:
        for name, kind in _symbols(path, nm):
            if kind == "U":
                needed.add(name)
            elif kind.isupper() or kind in "vw":
                own.add(name)
    return needed - own


def defined_functions(path: Path, dynamic: bool = False, *, nm: str = "") -> set[str]:
    """Names of the global functions (and objects) of a file; of a shared library its exports."""
    flags = ["-D"] if dynamic else []
    return {name for name, kind in _symbols(path, nm, *flags) if kind in "TWBDRVi"}


def soname(path: Path) -> str | None:
    """The name by which the dynamic linker knows a shared library, or None."""
    tool = shutil.which("readelf") or shutil.which("llvm-readelf")
    if tool is None:
        return None
    found = re.search(r"\(SONAME\).*\[(.*)\]", _output([tool, "-dW", str(path)]))
    return found.group(1) if found else None


def _symbols(path: Path, nm: str, *flags: str) -> list[tuple[str, str]]:
    text = _output([nm or HOST.tool("nm"), "-P", *flags, str(path)])
    return [m.groups() for line in text.splitlines() if (m := _SYMBOL.match(line))]


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise ToolchainError(f"{Path(command[0]).name} cannot read {command[-1]}: {lines[0]}")
    return done.stdout
