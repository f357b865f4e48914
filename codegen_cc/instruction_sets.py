"""The instruction sets that kernels are written for: the table of ``ext_isa.h``, read by Python.

The header (``runtime/include/ext_isa.h``) is the only place where they are written down.
"""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass
from functools import cache

from codegen_cc.errors import CodegenError
from codegen_cc.runtime_files import runtime_file

#: The row of the CPU that is compiled for, where it is another than this machine's.
COMPILE_ISA = "BYOC_COMPILE_ISA"

_ROW = re.compile(r"^ *ROW\((\w+), *(\w+), *(\w+), *(\w+),", re.MULTILINE)


@dataclass(frozen=True)
class InstructionSet:
    """A row of the table.

    ``machine`` is an architecture as ``uname -m`` has it, or ``any``; a level is what every kernel
    is compiled for; ``fallback`` names the row that stands in where a kernel does not come in this
    one, itself where there is none.
    """

    name: str
    machine: str
    is_level: bool
    fallback: str


@cache
def table() -> tuple[InstructionSet, ...]:
    """All rows, in the order of the C enum. Raises ``ToolchainError`` where kernels are missing."""
    text = runtime_file("include/ext_isa.h").read_text(encoding="utf-8")
    return tuple(
        InstructionSet(name, machine, families == "every", fallback)
        for name, machine, families, fallback in _ROW.findall(
            text.partition("#define EXT_ISA_TABLE")[2]
        )
    )


def levels_of(machine: str) -> tuple[str, ...]:
    """The levels of an architecture, the least one first."""
    names = [row.name for row in table() if row.is_level and row.machine == machine]
    if not names:
        names = [row.name for row in table() if row.is_level and row.machine == "any"]
    found = {name: None for best in names for name in with_fallbacks(best)}
    return tuple(row.name for row in reversed(table()) if row.name in found)


def with_fallbacks(name: str) -> tuple[str, ...]:
    """A row and all that it falls back on, one after the other."""
    rows = {row.name: row for row in table()}
    found = [name]
    while (fallback := rows[found[-1]].fallback) != found[-1]:
        found.append(fallback)
    return tuple(found)


def names_in(bits: int) -> tuple[str, ...]:
    """The rows in a set as ``ext_isas`` returns it, those below others first."""
    return tuple(row.name for i, row in reversed(list(enumerate(table()))) if bits >> i & 1)


@cache
def kernels_here() -> ctypes.CDLL:
    """The kernels, to ask what they use on this machine and how fast it multiplies.

    Raises ``ToolchainError`` where they have not been built.
    """
    library = ctypes.CDLL(str(runtime_file("lib/libext_kernels.so")))
    library.ext_isas.restype = ctypes.c_uint32
    library.ext_isa_name.restype = ctypes.c_char_p
    library.ext_bench_fma_peak.restype = ctypes.c_double
    return library


@cache
def in_use_here() -> frozenset[str]:
    """The rows that kernels use on this machine. Raises ``ToolchainError`` without kernels."""
    return frozenset(names_in(kernels_here().ext_isas()))


def compiled_for() -> frozenset[str]:
    """The rows of the CPU whose speeds decide what is compiled: this one's, or $BYOC_COMPILE_ISA's.

    Raises ``CodegenError`` where that names no row.
    """
    name = os.environ.get(COMPILE_ISA)
    if not name:
        return in_use_here()
    names = [row.name for row in table()]
    if name not in names:
        raise CodegenError(
            f"{COMPILE_ISA}={name}: unknown instruction set; need one of {', '.join(names)}"
        )
    return frozenset(with_fallbacks(name))
