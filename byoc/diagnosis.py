"""What is on this machine of all that byoc uses, and the command that brings what is missing."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from byoc.deploy.cores import within_quota
from byoc.machine import cpu_name, usable_cores
from byoc.version import __version__
from codegen_cc.c_compiler import INSTALL
from codegen_cc.errors import ByocError, one_line
from codegen_cc.target import HOST, NAMES, Target

_PACKAGE = "tvm-byoc-ext"
#: What each extra is for; those for the development of byoc itself are of no use to others.
_EXTRAS = {
    "cblas": "kernels of OpenBLAS",
    "onednn": "kernels of oneDNN",
    "compiler": "a C compiler, also for other machines",
    "extern": "byoc extern",
    "rpc": "RPC servers and trackers",
    "torch": "models of PyTorch",
    "ray": "batches by Ray Data",
    "serve": "serving by MLServer",
    "bench": "peers for byoc bench, and its plots",
    "genai": "peers for byoc bench --generate",
}
_REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:\[([\w,\s.-]+)\])?")
_OF_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w.-]+)['\"]")


@dataclass(frozen=True)
class Finding:
    """One thing: what was ``found``, or, where that is empty, what is ``missing`` of it.

    ``remedy`` is a command that brings it.  Without what is ``needed`` no model can be compiled.
    """

    what: str
    found: str = ""
    missing: str = ""
    remedy: str = ""
    needed: bool = False


def diagnose() -> list[Finding]:
    """Look at everything that byoc uses; nothing is changed. The order is always the same."""
    place = Path(__file__).resolve().parent
    return [
        Finding("byoc", f"{__version__} in {place}"),
        Finding("Python", f"{platform.python_version()} ({sys.executable})"),
        _tvm(),
        Finding("CPU", f"{cpu_name()}, {_cores(len(usable_cores()))}"),
        _kernels(),
        _compiler(),
        *_cross_compilers(),
        _cache(),
        _onnxruntime(),
        *_libraries(),
        *(_extra(name, use) for name, use in _EXTRAS.items()),
    ]


def to_json(findings: list[Finding]) -> dict[str, Any]:
    """Plain texts; ``ok`` says whether everything is there that is needed."""
    return {"ok": is_well(findings), "findings": [asdict(finding) for finding in findings]}


def is_well(findings: list[Finding]) -> bool:
    """Whether everything is there that compiling needs."""
    return not any(finding.needed and not finding.found for finding in findings)


def _cores(count: int) -> str:
    """As many as there are, and as a container's limit gives the process time for."""
    timed = within_quota(count)
    limited = f" (time for {timed}, by the limit of the container)" if timed < count else ""
    return _count(count, "core") + limited


def _tvm() -> Finding:
    remedy = f"pip install --force-reinstall {_PACKAGE}"
    try:
        import tvm
        import tvm_ffi
    except Exception as error:  # an import may fail in any way
        return Finding("TVM", missing=one_line(error), remedy=remedy, needed=True)
    found = f"{tvm.__version__}, tvm-ffi {tvm_ffi.__version__}"
    return Finding("TVM", found, needed=True)


def _kernels() -> Finding:
    from codegen_cc.instruction_sets import in_use_here, table
    from codegen_cc.runtime_files import runtime_file

    try:
        runtime_file("lib/libext_kernels.a")
        used = in_use_here()
        found = ", ".join(row.name for row in reversed(table()) if row.name in used)
    except (ByocError, OSError) as error:
        remedy = f"pip install --force-reinstall --no-deps {_PACKAGE}"
        return Finding("kernels", missing=str(error), remedy=remedy, needed=True)
    return Finding("kernels", f"for {found}", needed=True)


def _compiler() -> Finding:
    from codegen_cc.link.toolchain import require_linking

    try:
        command = HOST.compiler()
        HOST.archiver()
    except ByocError as error:
        return Finding("C compiler", missing=str(error), remedy=INSTALL, needed=True)
    said = _first_line([*command, "--version"])
    if said is None:
        missing = f"{command[0]} does not run"
        return Finding("C compiler", missing=missing, remedy=INSTALL, needed=True)
    try:
        require_linking()
    except ByocError as error:
        return Finding("C compiler", missing=str(error), remedy="export CC=gcc", needed=True)
    return Finding("C compiler", f"{said} ({command[0]})", needed=True)


def _cross_compilers() -> Iterator[Finding]:
    """A line for each foreign target of ``--target``."""
    from codegen_cc.link.foreign_kernels import INSTALL_MAKE, missing_to_build, need_building

    for target in map(Target.parse, (name for name in NAMES if name.endswith(("-gnu", "-musl")))):
        if not target.is_foreign:
            continue
        what = f"--target {target.name}"
        try:
            found, builds = target.compiler()[0], need_building(target)
        except ByocError as error:
            yield Finding(what, missing=str(error), remedy=INSTALL)
            continue
        if builds and (missing := missing_to_build(target)):
            yield Finding(what, missing=missing, remedy=INSTALL_MAKE)
        else:
            later = "; the kernels are built at the first use" if builds else ""
            yield Finding(what, f"{found}{later}")


def _cache() -> Finding:
    from codegen_cc.cache import LIMIT, cache_folder, cache_limit, entries

    folder = cache_folder()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        missing = f"{folder} cannot be written"
        return Finding("cache", missing=missing, remedy="export XDG_CACHE_HOME=FOLDER")
    try:
        limit = cache_limit() / 1e9
    except ByocError as error:
        return Finding("cache", missing=str(error), remedy=f"export {LIMIT}=GIGABYTES")
    sizes = [entry.bytes for entry in entries()]
    kept = f"{_count(len(sizes), 'thing')}, {sum(sizes) / 1e6:.1f} MB of {limit:g} GB at most"
    return Finding("cache", f"{folder}: {kept} (byoc doctor --clear-cache empties it)")


def _onnxruntime() -> Finding:
    version, use = _version("onnxruntime"), "byoc verify, byoc compare and byoc bench"
    if version is None:
        return Finding("ONNX Runtime", "", f"onnxruntime, for {use}", "pip install onnxruntime")
    return Finding("ONNX Runtime", f"{version}, for {use}")


def _libraries() -> Iterator[Finding]:
    from codegen_cc.libraries.survey import survey

    for library in survey():
        what = f"library {library.name}"
        if library.missing:
            remedy = f"pip install '{_PACKAGE}[{library.name}]'"
            is_ours = library.name in _EXTRAS
            yield Finding(what, missing=library.missing, remedy=remedy if is_ours else "")
        else:
            yield Finding(what, f"{library.version}, {library.linked}")


def _extra(name: str, use: str) -> Finding:
    """Whether all packages of an extra are there, by what the installed package says it needs."""
    try:
        wanted = sorted(set(_packages(_PACKAGE, name)))
    except metadata.PackageNotFoundError:
        return Finding(f"extra {name}", missing=f"{_PACKAGE} is not installed", remedy="make venv")
    if not wanted:  # of an environment that an older version was installed into
        return Finding(f"extra {name}", "", f"not known to the installed {_PACKAGE}", "make venv")
    versions = {package: _version(package) for package in wanted}
    if absent := [package for package, version in versions.items() if version is None]:
        remedy = f"pip install '{_PACKAGE}[{name}]'"
        return Finding(f"extra {name}", "", f"{', '.join(absent)}, for {use}", remedy)
    found = ", ".join(f"{package} {version}" for package, version in versions.items())
    return Finding(f"extra {name}", f"{found}, for {use}")


def _packages(package: str, extra: str) -> Iterator[str]:
    """The packages that an extra adds, with those of the extras of packages that it names."""
    for line in metadata.requires(package) or ():
        requirement, _, marker = line.partition(";")
        of_extra = _OF_EXTRA.search(marker)
        matched = _REQUIREMENT.match(requirement)
        if matched is None or of_extra is None or of_extra[1] != extra:
            continue
        yield matched[1]
        for inner in (matched[2] or "").split(","):
            if inner and _version(matched[1]) is not None:
                yield from _packages(matched[1], inner.strip())


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _first_line(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    lines = done.stdout.splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
