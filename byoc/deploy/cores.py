"""How many cores the process has: by its affinity mask, and by its control groups' time.

The standalone form counts by the same rules, in C (``runtime/standalone/cores.c``, ``quota.c``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def cores() -> int:
    """Physical cores that this process may use, and gets time for."""
    logical = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    try:
        siblings = {Path(_TOPOLOGY.format(core)).read_text(encoding="ascii") for core in logical}
    except OSError:
        siblings = set()
    return within_quota(len(siblings) or len(logical) or os.cpu_count() or 1)


def within_quota(most: int, root: Path = Path("/")) -> int:
    """So many cores, or the whole ones that control groups give the process time for: at least 1.

    A group's quota is so many microseconds of all cores in each period (cgroups(7)), as containers
    are limited. It holds for the groups inside. More threads would use the time up early, and all
    stand still for the rest of a period. ``root`` stands before the system's paths, for tests.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return most
    for line in lines:
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        # A container may not see its own group by this name: all groups around it count as well.
        mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        inside = PurePosixPath(group.lstrip("/"))
        for folder in (mount / inside, *(mount / around for around in inside.parents)):
            for quota, period in _quotas(folder):
                most = min(most, max(1, quota // period))
    return most


def _quotas(folder: Path) -> Iterator[tuple[int, int]]:
    """The quota and period of a group, of version 2 or 1, if it has any."""
    try:
        if (both := folder / "cpu.max").exists():
            quota, period = both.read_text(encoding="ascii").split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii")
            period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii")
        found = int(quota), int(period)
    except (OSError, ValueError):  # "max": there is none
        return
    if min(found) > 0:
        yield found
