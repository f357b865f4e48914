"""The machine that a benchmark runs on: its CPU, the cores to use, and their measured peak."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from byoc.bench.engines import ENGINES
from byoc.errors import BenchmarkError
from codegen_cc.instruction_sets import names_in, table

#: Path of a system file to its text.
Read = Callable[[str], str]

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@dataclass(frozen=True)
class Machine:
    """What a table of times must be read with; ``peak_gflops`` is that of one core.

    ``isa`` is the level of the kernels in use, ``extensions`` what they may use besides it.
    """

    cpu: str
    cores: int
    isa: str
    precision: str
    peak_gflops: float
    versions: dict[str, str]
    extensions: tuple[str, ...] = ()

    @classmethod
    def measure(cls, engines: Iterable[str]) -> Machine:
        """Look at the machine, take the versions of engines, and measure the peak."""
        from codegen_cc import abi

        library = abi.load()
        versions = {ENGINES[name].title: ENGINES[name].version() for name in engines}
        return cls(
            cpu=cpu_name(),
            cores=len(usable_cores()),
            isa=library.ext_isa_name().decode(),
            precision="fp32",
            peak_gflops=measure_peak(library, 100),
            versions=versions,
            extensions=extensions(library),
        )

    def lines(self) -> list[str]:
        """The machine for people, in two lines."""
        cores = f"{self.cores} core{'' if self.cores == 1 else 's'}"
        versions = ", ".join(f"{title} {version}" for title, version in self.versions.items())
        isa = " + ".join([self.isa, *self.extensions])
        return [
            f"{self.cpu}, {cores}, {isa}; FMA peak of a core, measured: "
            f"{self.peak_gflops:.1f} GFLOP/s",
            f"{self.precision}; {versions}",
        ]

    def to_json(self) -> dict[str, object]:
        """Plain numbers and texts."""
        return asdict(self)


def extensions(library: ctypes.CDLL) -> tuple[str, ...]:
    """Instruction sets that kernels may use besides their levels."""
    levels = {row.name for row in table() if row.is_level}
    return tuple(n for n in names_in(library.ext_isas()) if n not in levels)


def cpu_name(read: Read | None = None) -> str:
    """The CPU as the system calls it; ``read`` gives the text of a system file, empty if none.

    Where it has no name, as on ARM, the numbers of who made which cores (CPU implementer and part).
    """
    pairs = [line.partition(":") for line in (read or _read)("/proc/cpuinfo").splitlines()]
    entries = [(name.strip(), value.strip()) for name, _, value in pairs]
    if names := [value for name, value in entries if name == "model name"]:
        return names[0]
    makers = [value for name, value in entries if name == "CPU implementer"]
    parts = dict.fromkeys(value for name, value in entries if name == "CPU part")
    if makers and parts:
        return f"CPU {makers[0]} {'+'.join(parts)}"
    return (platform.processor() if read is None else "") or "unknown CPU"


def usable_cores() -> list[int]:
    """One logical CPU of each physical core that this process may use."""
    return separate_cores(os.sched_getaffinity(0))


def separate_cores(logical: Iterable[int], read: Read | None = None) -> list[int]:
    """The first of each physical core's logical CPUs; ``read`` as for ``cpu_name``."""
    chosen: dict[str, int] = {}
    for number in sorted(logical):
        chosen.setdefault((read or _read)(_TOPOLOGY.format(number)) or str(number), number)
    return list(chosen.values())


def choose_cores(threads: int) -> list[int]:
    """The cores of a benchmark with so many threads. Raises ``BenchmarkError`` if too few."""
    cores = usable_cores()
    if threads > len(cores):
        raise BenchmarkError(
            f"cannot time {threads} threads: this process may use {len(cores)} cores, and threads "
            "that share one would be timed against each other"
        )
    return cores[:threads]


def measure_peak(library: ctypes.CDLL, runs: int) -> float:
    """The best GFLOP/s of independent multiply-adds on one core, over ``runs`` short runs."""
    return max(library.ext_bench_fma_peak() for _ in range(runs))


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
