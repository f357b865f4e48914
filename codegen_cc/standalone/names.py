"""Names of models: they begin C functions, and name a header and libraries.

So a name must be the beginning of an identifier (a keyword is one: ``int_create`` is no keyword),
and neither its functions nor its files may be mistaken for those of the system.  The compiler of
the target is asked what the system has.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from codegen_cc.errors import CodegenError, ToolchainError
from codegen_cc.link.system_libraries import has_library, not_in_system
from codegen_cc.link.toolchain import telling_line
from codegen_cc.target import Target

_LONGEST = 40
#: Starts of names that the common headers and the runtime inside a library have.
_TAKEN = ("byoc", "ext", "tvm")
#: What the compiler repeats where it has a header.
_FOUND = "byoc_found_it"


def default_name(stem: str) -> str:
    """A name from that of the model's file, without its suffix; it may still be refused."""
    clean = re.sub(r"[^0-9A-Za-z]+", "_", stem).strip("_")[:_LONGEST].strip("_")
    return clean if clean and not clean[0].isdigit() else f"model_{clean}".rstrip("_")


def require_name(name: str, functions: Sequence[str], target: Target) -> None:
    """Raise ``CodegenError`` where a model for ``target`` cannot have that name.

    ``functions`` are those that its libraries would export.
    """
    if not isinstance(name, str):
        raise CodegenError(f"a model's name is of type {type(name).__name__}; need a text")
    reason = _unfit(name) or _meets_the_system(name, functions, target)
    if reason:
        raise CodegenError(f"a model cannot be named {name!r}: {reason}; give another with --name")


def _unfit(name: str) -> str | None:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name, re.ASCII):
        return "need ASCII letters, digits and underscores, a letter first"
    if len(name) > _LONGEST:
        return f"it is longer than {_LONGEST} characters"
    if re.match(rf"({'|'.join(_TAKEN)})(_|$)", name):
        return f"names that begin with {', '.join(_TAKEN)} are taken"
    return None


def _meets_the_system(name: str, functions: Sequence[str], target: Target) -> str | None:
    if has_library(name, target):
        return f"the system has a library lib{name}.so or lib{name}.a"
    if taken := sorted(set(functions) - not_in_system(set(functions), target)):
        return f"the system's libraries have a function {taken[0]}"
    text = f"#if __has_include(<{name}.h>)\n{_FOUND}\n#endif\n"
    command = [*target.compiler(), "-E", "-x", "c", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise ToolchainError(f"{Path(command[0]).name} failed: {telling_line(done.stderr)}")
    return f"the system has a header {name}.h" if _FOUND in done.stdout else None
