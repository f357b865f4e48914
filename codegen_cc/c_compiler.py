"""Which C compiler makes code for a target: gcc and its like on the path, else Zig's.

The package ``ziglang``, which the extra ``compiler`` brings, holds a whole tool chain with headers
and C libraries of all targets.  It is a program ``zig`` whose first argument names the tool, so
that a compiler here is the first words of a command.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from codegen_cc.errors import ToolchainError

#: What brings a compiler without a package of the system.
INSTALL = "pip install 'tvm-byoc-ext[compiler]'"
#: The C library that TVM's wheels need, so that no process that loads a model has an older one.
_GLIBC = "2.28"
#: By Zig's names, as code is for any CPU of an architecture; it would take this machine's.  It
#: would also stop a program where behaviour is undefined, and write debug information.
_ZIG_FLAGS = ("-mcpu=baseline", "-fno-sanitize=undefined", "-g0")
_ZIG_MACHINES = ("x86_64", "aarch64")


def find_compiler(machine: str, triple: str, foreign: bool) -> tuple[str, ...]:
    """The first words of a command that compiles C for a machine.

    For this one ``$CC``, of one word or several (``ccache gcc``), else the first of gcc, clang and
    cc on the path; for another ``$CROSS_CC``, else the gcc of its name; where there is none of
    these, Zig's, which ``zig`` names as well.  Raises ``ToolchainError`` naming what to install.
    """
    variable = "CROSS_CC" if foreign else "CC"
    named = named_command(variable)
    names = named[:1] or ([f"{triple}-gcc"] if foreign else ["gcc", "clang", "cc"])
    for name in names:
        if name != "zig" and (found := shutil.which(name)):
            return (found, *named[1:])
    zig = _zig_program() if not named or named[0] == "zig" else None
    if zig is not None and machine in _ZIG_MACHINES:
        version = f".{_GLIBC}" if triple.endswith("-gnu") else ""
        return (zig, "cc", "-target", f"{triple}{version}", *_ZIG_FLAGS)
    what = f"'{named[0]}' (from ${variable})" if named else ", ".join(names)
    if named and named[0] == "zig":
        raise ToolchainError(f"no C compiler: {what} is not installed; get it by {INSTALL}")
    package = f"gcc-{triple}" if foreign else "gcc"
    ways = [f"'apt install {package}'"] if not triple.endswith("-musl") else []
    ways += [INSTALL] if machine in _ZIG_MACHINES else []
    raise ToolchainError(
        f"no C compiler: {what} is not on the path; install one, for example {' or '.join(ways)}"
    )


def named_command(*variables: str) -> list[str]:
    """The words of the first of these variables that has any, such as ``ccache gcc``.

    Raises ``ToolchainError`` where quotes in it are not closed.
    """
    for variable in variables:
        text = os.environ.get(variable, "")
        try:
            words = shlex.split(text)
        except ValueError as err:
            raise ToolchainError(f"cannot read {variable}={text}: {err}") from err
        if words:
            return words
    return []


def is_zig(command: Sequence[str]) -> bool:
    """Whether a compiler that was found is Zig's, whose linker is LLVM's."""
    return Path(command[0]).name == "zig"


@cache
def _zig_program() -> str | None:
    """Zig of the package, else on the path."""
    package = find_spec("ziglang")
    for folder in (package and package.submodule_search_locations) or ():
        if (program := Path(folder, "zig")).is_file():
            return str(program)
    return shutil.which("zig")
