"""Targets: the machine that a library is for, and the tools that make it.

A target is this machine's architecture at one of its levels, or another architecture by the name
of its GNU tools, such as ``aarch64-linux-gnu``.  The kernels bring all instruction sets of their
architecture with them and choose when they are loaded; a level decides what TVM's compiler may use
in the code that is not offloaded, and so what CPU the library needs at least.
"""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from codegen_cc.c_compiler import find_compiler, is_zig
from codegen_cc.errors import ToolchainError
from codegen_cc.instruction_sets import levels_of

#: CPU flags of each level of x86-64, by the names of /proc/cpuinfo: the psABI supplement's table
#: "Micro-Architecture Levels", each level with what it adds.
X86_64_LEVELS = {
    "x86-64": (),
    "x86-64-v2": ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"),
    "x86-64-v3": ("abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}
#: Architectures by the numbers that ELF headers have for them (e_machine).
ELF_MACHINES = {
    "i686": 3,
    "ppc64le": 21,
    "s390x": 22,
    "arm": 40,
    "x86_64": 62,
    "aarch64": 183,
    "riscv64": 243,
    "loongarch64": 258,
}
_TRIPLES = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_CPUINFO = Path("/proc/cpuinfo")

#: What ``--target`` takes.
NAMES = (*X86_64_LEVELS, "native", "aarch64-linux-gnu", "aarch64-linux-musl", "x86_64-linux-musl")


@dataclass(frozen=True)
class Target:
    """A machine to compile for.

    ``machine`` is its architecture as ``uname -m`` has it; ``level`` is the level of x86-64 that
    it needs at least, None where every CPU of the architecture will do; ``libc`` is the C library,
    ``gnu`` or ``musl``.
    """

    machine: str
    level: str | None = None
    libc: str = "gnu"

    @classmethod
    def parse(cls, name: str | None = None) -> Target:
        """A target by its name, one of ``NAMES``; without one, any CPU of this architecture.

        ``native`` is the highest level that this machine has.  Raises ``ToolchainError``.
        """
        machine = platform.machine()
        if name is None:
            return cls(machine)
        if name == "native":
            return cls(machine, own_level())
        if isinstance(name, str) and name in X86_64_LEVELS:
            return cls("x86_64", None if name == "x86-64" else name)
        for known, triple in _TRIPLES.items():
            if name == triple:
                return cls(known)
            if name == triple.replace("-gnu", "-musl"):
                return cls(known, libc="musl")
        raise ToolchainError(f"unknown target {name!r}; known: {', '.join(NAMES)}")

    @property
    def name(self) -> str:
        """A name that ``parse`` takes."""
        if self.machine == "x86_64" and self.libc == "gnu":
            return self.level or "x86-64"
        return self.triple

    @property
    def triple(self) -> str:
        """The prefix of the GNU tools for it."""
        triple = _TRIPLES.get(self.machine, f"{self.machine}-linux-gnu")
        return triple.replace("-gnu", f"-{self.libc}")

    @property
    def is_foreign(self) -> bool:
        """Whether this process cannot run what is compiled for it."""
        return self.libc != "gnu" or self.machine != platform.machine()

    @property
    def kernel_levels(self) -> tuple[str, ...]:
        """Instruction sets that all kernels are compiled for, the least one first.

        Raises ``ToolchainError`` where the kernel runtime is missing.
        """
        return levels_of(self.machine)

    @cached_property
    def tvm(self) -> str | dict[str, Any]:
        """What ``tvm.target.Target`` is made from."""
        if self.is_foreign:
            return {"kind": "llvm", "mtriple": self.triple} | self._cpu
        return {"kind": "llvm"} | self._cpu if self._cpu else "llvm"

    @property
    def _cpu(self) -> dict[str, str]:
        return {"mcpu": self.level} if self.level else {}

    def compiler(self) -> tuple[str, ...]:
        """The first words of a command that compiles and links C for it.

        Raises ``ToolchainError`` naming what to install (``codegen_cc.c_compiler``).
        """
        return find_compiler(self.machine, self.triple, self.is_foreign)

    def archiver(self) -> tuple[str, ...]:
        """The first words of a command of ``ar``. Raises ``ToolchainError``."""
        compiler = self.compiler()
        return (compiler[0], "ar") if is_zig(compiler) else (self.tool("ar"),)

    def tool(self, name: str) -> str:
        """A program of binutils for this target, such as ar.

        An environment variable of that name in capitals goes first for this machine's own.  Raises
        ``ToolchainError``.
        """
        if self.is_foreign:
            candidates = [f"{self.triple}-{name}"]
        else:
            candidates = [os.environ.get(name.upper(), name)]
        for candidate in (*candidates, f"llvm-{name}"):
            if found := shutil.which(candidate):
                return found
        package = f"binutils-{self.triple}" if self.is_foreign else "binutils"
        raise ToolchainError(
            f"no {candidates[0]} on the path; install {package}, "
            f"for example 'apt install {package}'"
        )


def cpu_flags() -> frozenset[str]:
    """Flags of this machine's CPU; empty where the system does not tell."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    found = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(found.partition(":")[2].split())


def missing_flags(level: str) -> tuple[str, ...]:
    """What this machine's CPU lacks of a level of x86-64, nothing where it cannot be told."""
    flags = cpu_flags()
    names = list(X86_64_LEVELS)
    needed = [f for name in names[: names.index(level) + 1] for f in X86_64_LEVELS[name]]
    return tuple(flag for flag in needed if flag not in flags) if flags else ()


def own_level() -> str | None:
    """The highest level of x86-64 that this machine has above the first, else None."""
    if platform.machine() != "x86_64" or not cpu_flags():
        return None
    levels = [level for level in list(X86_64_LEVELS)[1:] if not missing_flags(level)]
    return levels[-1] if levels else None


#: Any CPU of this machine's architecture.
HOST = Target.parse()
