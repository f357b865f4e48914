"""How many cores the process has: by its affinity mask, and by its control groups' time.

The standalone form counts by the same rules, in C (``runtime/standalone/cores.c``, ``quota.c``).
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from byoc.machine import usable_cores


def cores() -> int:
    """Physical cores that this process may use, and gets time for."""
    return within_quota(len(usable_cores()))


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
            most = min(most, _of_group(folder) or most)
    return most


def _of_group(folder: Path) -> int | None:
    """The cores of one group's quota, of version 2 or 1; None where it has none."""
    try:
        if (both := folder / "cpu.max").exists():
            quota, period = both.read_text(encoding="ascii").split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii")
            period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii")
        found = int(quota), int(period)
    except (OSError, ValueError):  # "max": there is none
        return None
    return max(1, found[0] // found[1]) if min(found) > 0 else None
