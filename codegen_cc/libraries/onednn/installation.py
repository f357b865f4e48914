"""Where oneDNN is installed, and whether it is one that the adapter can use."""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from codegen_cc.errors import LibraryError

MAJOR = 3
#: Before 3.2 its GELU is wrong by 4e-4.
LEAST_MINOR = 2
REMEDY = "pip install onednn-devel-cpu-gomp, or let ONEDNN_ROOT be the folder of include and lib"

#: Values of ``DNNL_CPU_THREADING_RUNTIME`` in oneDNN's header.
_RUNTIMES = {1: "sequential", 2: "OpenMP", 4: "TBB", 8: "thread pool", 512: "SYCL"}
#: Those whose number of threads the adapter can set.
_USABLE = (1, 2)


@dataclass(frozen=True)
class Installation:
    """One oneDNN: its version, the folder that holds ``oneapi/dnnl/dnnl.h``, and its library."""

    version: str
    include: Path
    library: Path


def find_installation(prefixes: Iterable[Path] | None = None) -> Installation:
    """The first usable oneDNN below these folders, by default those of ``search_prefixes``.

    Raises ``LibraryError`` naming what was found instead, and what to install.
    """
    prefixes = list(dict.fromkeys(search_prefixes() if prefixes is None else prefixes))
    reasons: list[str] = []
    for prefix in prefixes:
        found = inspect_prefix(prefix)
        if isinstance(found, Installation):
            return found
        if found is not None:
            reasons.append(found)
    what = "; ".join(dict.fromkeys(reasons))
    if not what:
        what = f"no oneapi/dnnl/dnnl.h below {', '.join(map(str, prefixes))}"
    raise LibraryError(f"kernel library onednn is not usable: {what}; {REMEDY}")


def search_prefixes() -> list[Path]:
    """``$ONEDNN_ROOT`` alone if it is set, else this Python, its packages, and the system."""
    root = os.environ.get("ONEDNN_ROOT")
    if root:
        return [Path(root)]
    prefixes = [Path(sys.prefix)]
    packages = [sysconfig.get_path("purelib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        packages.append(site.getusersitepackages())
    for folder in map(Path, packages):
        prefixes += [folder, *folder.parents[2:3]]  # pip --target; lib/python3.x/site-packages
    system = ("/usr/local", "/usr", "/opt/intel/oneapi/dnnl/latest")
    return [*prefixes, *map(Path, system)]


def inspect_prefix(prefix: Path) -> Installation | str | None:
    """The oneDNN below a folder, why it cannot be used, or None if there is none."""
    include = prefix / "include"
    header = include / "oneapi" / "dnnl" / "dnnl_version.h"
    if not header.is_file():
        old = (include / "dnnl_version.h").is_file() or (include / "mkldnn.h").is_file()
        return f"{include} has headers of oneDNN before version 2; need {MAJOR}" if old else None
    numbers = _defines(header, "DNNL_VERSION_(MAJOR|MINOR|PATCH)", r"\d+")
    version = ".".join(numbers.get(part, "0") for part in ("MAJOR", "MINOR", "PATCH"))
    usable = numbers.get("MAJOR") == str(MAJOR) and int(numbers.get("MINOR", 0)) >= LEAST_MINOR
    if not usable:
        return f"{header.parent} is oneDNN {version}; need {MAJOR}.{LEAST_MINOR} or a later {MAJOR}"
    runtimes = _defines(header.with_name("dnnl_config.h"), "DNNL_(CPU_THREADING_RUNTIME)", r"\w+")
    runtime = _runtime_number(runtimes.get("CPU_THREADING_RUNTIME", ""))
    if runtime not in _USABLE:
        kind = _RUNTIMES.get(runtime, "an unknown kind")
        return f"{header.parent} is oneDNN {version} with threads by {kind}; need OpenMP"
    library = _library(prefix)
    if library is None:
        return f"{prefix} has headers of oneDNN {version} but no libdnnl.so.{MAJOR}"
    return Installation(version, include, library)


def _library(prefix: Path) -> Path | None:
    folders = ["lib", "lib64"]
    machine = sysconfig.get_config_var("MULTIARCH")
    if machine:
        folders.append(f"lib/{machine}")
    candidates = [prefix / folder / f"libdnnl.so.{MAJOR}" for folder in folders]
    return next((path.resolve().parent / path.name for path in candidates if path.is_file()), None)


def _defines(header: Path, name: str, value: str) -> dict[str, str]:
    """Values of ``#define`` lines by the group in the pattern of their names."""
    try:
        text = header.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return dict(re.findall(rf"^\s*#define\s+{name}\s+({value})\s*$", text, re.MULTILINE))


def _runtime_number(text: str) -> int:
    names = {"SEQ": 1, "OMP": 2, "TBB": 4, "THREADPOOL": 8, "SYCL": 512, "DPCPP": 512}
    name = text.removeprefix("DNNL_RUNTIME_")
    return names.get(name, int(name) if name.isdecimal() else 0)
