"""Functions of shared libraries, found when they are first needed instead of linked.

TVM's exporter links regions without a word about libraries, and a library that the dynamic linker
misses ends the process that loads the model.  So a call of such a function is a call of a small
trampoline here, which jumps through a table; ``ext_open_<library>`` fills the table, and says in
one line what is missing.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from codegen_cc.errors import LibraryError
from codegen_cc.link.objects import defined_functions, soname

_JUMP = {
    "x86_64": ("  jmp *{table}+{offset}(%rip)",),
    "aarch64": (
        "  adrp x16, {table}+{offset}",
        "  ldr x16, [x16, #:lo12:{table}+{offset}]",
        "  br x16",
    ),
}


@dataclass(frozen=True)
class OpenedFile:
    """A shared library of a kernel library, and the functions of it that a module calls."""

    library: str
    path: Path
    functions: tuple[str, ...]


def opened_files(library: str, shared: tuple[Path, ...], undefined: set[str]) -> list[OpenedFile]:
    """Which undefined functions come from which shared library, the first that has them.

    Raises ``LibraryError`` where a file is missing or no library.
    """
    found: list[OpenedFile] = []
    left = set(undefined)
    for path in shared:
        if not path.is_file():
            raise LibraryError(
                f"library {library}: {path} does not exist; install or build the library again"
            )
        functions = tuple(sorted(left & defined_functions(path, dynamic=True)))
        left.difference_update(functions)
        found.append(OpenedFile(library, path, functions))
    return found


def trampolines(imports: list[OpenedFile], machine: str) -> str:
    """Assembler text: the tables, and one jump for each function.

    Raises ``LibraryError`` for a machine without such code.
    """
    if machine not in _JUMP:
        raise LibraryError(
            f"shared kernel libraries cannot be opened on {machine}; use a static one"
        )
    lines = ["/* Calls of functions in shared libraries: jumps through tables. */"]
    for index, entry in enumerate(imports):
        table = _table(entry, index)
        size = 8 * max(len(entry.functions), 1)
        lines += ["  .bss", "  .balign 8", f"  .globl {table}", f"  .hidden {table}"]
        lines += [f"{table}:", f"  .zero {size}", "  .text"]
        for number, function in enumerate(entry.functions):
            lines += [f"  .globl {function}", f"  .hidden {function}"]
            lines += [f"  .type {function}, %function", f"{function}:"]
            lines += [text.format(table=table, offset=8 * number) for text in _JUMP[machine]]
    lines.append('  .section .note.GNU-stack,"",%progbits')
    return "\n".join(lines) + "\n"


def opening(imports: list[OpenedFile]) -> str:
    """C text of ``ext_open_<library>`` for each library among the imports."""
    parts = ['#include "ext_open.h"\n']
    for index, entry in enumerate(imports):
        table = _table(entry, index)
        names = ", ".join(f'"{function}"' for function in entry.functions) or "0"
        count = len(entry.functions)
        files = [soname(entry.path) or entry.path.name, os.path.abspath(entry.path)]
        parts.append(
            f"/* {count} functions for library {entry.library}. */\n"
            f"extern void* {table}[{max(count, 1)}];\n"
            f"static const char* const names{index}[] = {{{names}}};\n"
            f"static const char file{index}[] = {c_string(files[0])};\n"
            f"static const char path{index}[] = {c_string(files[1])};\n"
        )
    for library in dict.fromkeys(entry.library for entry in imports):
        own = [i for i, entry in enumerate(imports) if entry.library == library]
        lines = [
            f'      {{"{library}", file{i}, path{i}, names{i}, {_table(imports[i], i)},'
            f" {len(imports[i].functions)}}},"
            for i in own
        ]
        parts.append(
            "\n".join(
                [
                    f"const char* ext_open_{library}(void);",
                    f"const char* ext_open_{library}(void) {{",
                    "  static ext_open_state state;",
                    "  static const ext_import imports[] = {",
                    *lines,
                    "  };",
                    f"  return ext_open(&state, imports, {len(own)});",
                    "}",
                    "",
                ]
            )
        )
    return "\n".join(parts)


def _table(entry: OpenedFile, index: int) -> str:
    return f"ext_imports_{entry.library}_{index}"


def c_string(text: str) -> str:
    """A C literal of any text: what is not plain becomes octal escapes."""
    plain = re.compile(rb"[A-Za-z0-9_./+-]")
    data = text.encode("utf-8", "surrogateescape")
    return '"' + "".join(chr(b) if plain.match(bytes([b])) else f"\\{b:03o}" for b in data) + '"'
