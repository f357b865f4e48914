"""How many threads are the default where a container's time is limited: in Python, and in C."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

import byoc
from byoc.deploy.cores import within_quota

RUNTIME = Path(byoc.__file__).parents[1] / "runtime"
MOST = 16

#: The process's groups, files of their folders, and the cores that there is time for.
SYSTEMS: dict[str, tuple[str, Mapping[str, str], int]] = {
    "a container": ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
    "not limited": ("0::/\n", {"cpu.max": "max 100000\n"}, MOST),
    "a part of a core": ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
    "two and a half": ("0::/\n", {"cpu.max": "250000 100000\n"}, 2),
    "more than there are": ("0::/\n", {"cpu.max": "6400000 100000\n"}, MOST),
    "a group around": (
        "0::/pods/one\n",
        {"cpu.max": "max 100000\n", "pods/cpu.max": "300000 100000", "pods/one/cpu.max": "max 1"},
        3,
    ),
    "its own of several": ("0::/a/b\n", {"a/cpu.max": "900000 100000", "a/b/cpu.max": "4 1"}, 4),
    "version 1": (
        "5:memory:/x\n4:cpu,cpuacct:/docker/7\n3:cpuset:/\n",
        {"cpu/docker/7/cpu.cfs_quota_us": "150000\n", "cpu/docker/7/cpu.cfs_period_us": "50000\n"},
        3,
    ),
    "version 1 by another name": (
        "4:cpuacct,cpu:/docker/7\n",
        {"cpu/cpu.cfs_quota_us": "700000\n", "cpu/cpu.cfs_period_us": "100000\n"},
        7,
    ),
    "version 1 not limited": (
        "4:cpu:/\n",
        {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
        MOST,
    ),
    "no groups": ("", {}, MOST),
    "nonsense": ("0::/\n", {"cpu.max": "many\n"}, MOST),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The standalone form's rule, which prints the cores of a root."""
    folder = tmp_path_factory.mktemp("quota")
    source = folder / "main.c"
    source.write_text(
        '#include <stdio.h>\n#include <stdlib.h>\n#include "standalone/instance.h"\n'
        "int main(int count, char** given) {\n"
        '  if (count == 3) printf("%d\\n", ext_quota_of_cores(given[1], atoi(given[2])));\n'
        "  return count != 3;\n}\n"
    )
    command = ["gcc", "-Wall", "-Werror", f"-I{RUNTIME}", f"-I{RUNTIME / 'include'}", str(source)]
    made = folder / "quota"
    subprocess.run([*command, str(RUNTIME / "standalone" / "quota.c"), "-o", str(made)], check=True)
    return made


@pytest.mark.parametrize("system", SYSTEMS)
def test_cores_that_there_is_time_for(system: str, program: Path, tmp_path: Path) -> None:
    groups, files, wanted = SYSTEMS[system]
    for name, text in (
        ("proc/self/cgroup", groups),
        *((f"sys/fs/cgroup/{n}", text) for n, text in files.items()),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert within_quota(MOST, tmp_path) == wanted
    done = subprocess.run([program, tmp_path, str(MOST)], capture_output=True, text=True)
    assert done.stdout == f"{wanted}\n"
