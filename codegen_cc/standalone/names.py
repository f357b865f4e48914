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

from codegen_cc.errors import CodegenError
from codegen_cc.link.objects import defined_functions
from codegen_cc.target import Target

_LONGEST = 40
#: Starts of names that the common headers and the runtime inside a library have.
_TAKEN = ("byoc", "ext", "tvm")


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
    cc = target.compiler()
    for file in (f"lib{name}.so", f"lib{name}.a"):
        if Path(_said(cc, f"-print-file-name={file}")).is_absolute():
            return f"the system has a library {file}"
    for file in ("libc.so.6", "libm.so.6"):
        path = Path(_said(cc, f"-print-file-name={file}"))
        if path.is_absolute() and path.exists():
            system = defined_functions(path, dynamic=True, nm=target.tool("nm"))
            if taken := sorted(system.intersection(functions)):
                return f"{file} has a function {taken[0]}"
    text = f"#if __has_include(<{name}.h>)\n#error taken\n#endif\n"
    command = [cc, "-E", "-x", "c", "-"]
    if subprocess.run(command, input=text, capture_output=True, text=True).returncode != 0:
        return f"the system has a header {name}.h"
    return None


def _said(cc: str, flag: str) -> str:
    return subprocess.run([cc, flag], capture_output=True, text=True, check=False).stdout.strip()
