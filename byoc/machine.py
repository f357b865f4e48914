"""This machine, or another one by its system files: its CPU, and the cores to use."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable
from pathlib import Path

from byoc.errors import BenchmarkError

#: Path of a system file to its text.
Read = Callable[[str], str]

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


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


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
