"""The machine of a benchmark: what its times must be read with."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from byoc.bench.engines import ENGINES
from byoc.machine import cpu_name, usable_cores
from codegen_cc.instruction_sets import kernels_here, names_in, table


@dataclass(frozen=True)
class Machine:
    """What a table of times must be read with; ``peak_gflops`` is that of one core.

    ``isa`` is the level of the kernels in use, ``extensions`` what they may use besides it.
    """

    cpu: str
    cores: int
    isa: str
    peak_gflops: float
    versions: dict[str, str]
    extensions: tuple[str, ...] = ()

    @classmethod
    def measure(cls, engines: Iterable[str]) -> Machine:
        """Look at the machine, take the versions of engines, and measure the peak."""
        library = kernels_here()
        versions = {ENGINES[name].title: ENGINES[name].version() for name in engines}
        return cls(
            cpu=cpu_name(),
            cores=len(usable_cores()),
            isa=library.ext_isa_name().decode(),
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
            versions,
        ]

    def to_json(self) -> dict[str, object]:
        """Plain numbers and texts."""
        return asdict(self)


def extensions(library: ctypes.CDLL) -> tuple[str, ...]:
    """Instruction sets that kernels may use besides their levels."""
    levels = {row.name for row in table() if row.is_level}
    return tuple(n for n in names_in(library.ext_isas()) if n not in levels)


def measure_peak(library: ctypes.CDLL, runs: int) -> float:
    """The best GFLOP/s of independent multiply-adds on one core, over ``runs`` short runs."""
    return max(library.ext_bench_fma_peak() for _ in range(runs))


def peak_mb(pid: int | str = "self") -> float:
    """The most memory that a process had so far, in MB; 0 where the system does not tell.

    Not by ru_maxrss, which counts what the process had before it became another program.
    """
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        if found := re.search(r"VmHWM:\s*(\d+) kB", status):
            return int(found[1]) * 1024e-6
    return 0.0
