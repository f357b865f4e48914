"""What the system's libraries define, as the compiler for a target finds them."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from codegen_cc.c_compiler import is_zig
from codegen_cc.errors import ToolchainError
from codegen_cc.link.objects import defined_functions
from codegen_cc.target import Target

#: Libraries that every process has in which a model is loaded, besides TVM's two.
_UNWINDER = "libgcc_s.so.1"
_SYSTEM = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", _UNWINDER)
_SYSTEM_CXX = "libstdc++.so.6"
#: What glibc links into each library instead, such as ``atexit``.
_LINKED_IN = "libc_nonshared.a"
_LINKED = ("-lm", "-lpthread", "-ldl")
_UNDEFINED = re.compile(r"undefined symbol: (\S+)")


def not_in_system(names: set[str], target: Target) -> set[str]:
    """Those of the names of functions that none of the system's libraries has."""
    if is_zig(target.compiler()):
        return _not_linked(names, target)
    for library in (*_SYSTEM, _SYSTEM_CXX, _LINKED_IN):
        if not names:
            break
        if path := _file(library, target):
            names = names - defined_functions(path, dynamic=library != _LINKED_IN)
    return names


def has_library(name: str, target: Target) -> bool:
    """Whether a linker's ``-lNAME`` would find a library of the system."""
    if is_zig(target.compiler()):
        return not _link_errors("", [f"-l{name}"], target)
    return any(_file(f"lib{name}.{kind}", target) for kind in ("so", "a"))


def _file(name: str, target: Target) -> Path | None:
    """Where the compiler finds a library, or None."""
    command = [*target.compiler(), f"-print-file-name={name}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    path = Path(done.stdout.strip())
    return path if path.is_absolute() and path.exists() else None


def _not_linked(names: set[str], target: Target) -> set[str]:
    """By links of a table of them: Zig has no C library as a file, it makes what a link needs."""
    names = names - _of_cxx(target)
    # No C library has names of C++, and the linker would tell them as people write them.
    missing = {name for name in names if name.startswith("_Z")}
    while left := names - missing:
        table = "".join(f"  .quad {name}\n" for name in sorted(left))
        said = _link_errors(f'  .section .data.rel,"aw"\n{table}', _LINKED, target)
        if not said:
            break
        found = left.intersection(_UNDEFINED.findall(said))  # the linker stops after 20
        if not found:
            raise ToolchainError(f"cannot ask the linker for functions: {said.splitlines()[0]}")
        missing |= found
    return missing


def _of_cxx(target: Target) -> set[str]:
    """What C++ needs of this process, as every one has that loads a model on this machine."""
    if target.is_foreign:
        return set()
    files = filter(None, map(_loaded, (_SYSTEM_CXX, _UNWINDER)))
    return set().union(*(defined_functions(file, dynamic=True) for file in files))


def _link_errors(assembler: str, libraries: Sequence[str], target: Target) -> str:
    """What the linker says of a text in assembler as a shared library, nothing where it links."""
    with tempfile.TemporaryDirectory(prefix="byoc_") as folder:
        Path(folder, "table.s").write_text(assembler, encoding="ascii")
        command = [*target.compiler(), "-shared", "-Wl,-z,defs", "table.s", "-o", "table.so"]
        done = subprocess.run(
            [*command, *libraries],
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    return (done.stderr.strip() or "no message") if done.returncode != 0 else ""


def _loaded(name: str) -> Path | None:
    """Where a library lies that this process has loaded, as TVM has that of C++."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    files = (Path(line.split(maxsplit=5)[5]) for line in lines if f"/{name}" in line)
    # The name is mostly that of a link to the file, which has the rest of its version behind it.
    return next((f for f in files if f.name.startswith(name) and f.is_file()), None)
