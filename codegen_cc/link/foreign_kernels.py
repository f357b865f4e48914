"""The kernels for another architecture: built from their sources when first needed, then kept.

The package brings an archive for the architecture that it was installed on, and the sources.
Wheels of releases bring those of the other architecture as well.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from codegen_cc.cache import cache_folder, make_room, used
from codegen_cc.errors import ToolchainError
from codegen_cc.runtime_files import RUNTIME, runtime_file
from codegen_cc.target import Target

#: Where a wheel has archives for other architectures, each in a folder by its triple.
FOREIGN = "foreign"
#: The command that brings what builds kernels from their sources.
INSTALL_MAKE = "apt install make"
#: In a source tree the sources themselves, which may be newer than the installed copy.
_SOURCE_TREE = RUNTIME.parents[1] / "runtime"


def kernel_archive(target: Target) -> Path:
    """``libext_kernels.a`` for a target.

    That of another architecture is the one in the wheel, else it is built with the target's
    compiler at its first use, which takes some tens of seconds, into ``$XDG_CACHE_HOME/byoc``
    (else ``~/.cache/byoc``), by the sources' content and the compiler's version.  Raises
    ``ToolchainError``.
    """
    return kernel_file(target, "lib/libext_kernels.a")


def kernel_file(target: Target, relative: str) -> Path:
    """A file of the kernel runtime for a target, such as ``lib/libext_kernels.so``."""
    # What kernels ask of a C library is the same in all: a target without one has those of glibc.
    target = Target(target.machine)
    if not target.is_foreign or relative.startswith("include/"):
        return runtime_file(relative)
    if (shipped := RUNTIME / FOREIGN / target.triple / relative).is_file():
        return shipped
    folder = _kept(target)
    used(folder)
    if not folder.is_dir():
        _build(target, folder)
        make_room()
    return folder / relative


def need_building(target: Target) -> bool:
    """Whether whoever asks for a target's kernels now would wait until they are built."""
    target = Target(target.machine)
    if not target.is_foreign or (RUNTIME / FOREIGN / target.triple).is_dir():
        return False
    return not _kept(target).is_dir()


def missing_to_build(target: Target) -> str:
    """What is not here that building a target's kernels needs, besides a compiler; or nothing."""
    if shutil.which("make") is not None:
        return ""
    return (
        f"building the kernels for {target.name} needs make, which is not on the path; "
        f"install it, for example '{INSTALL_MAKE}'"
    )


def _kept(target: Target) -> Path:
    """Where the kernels are once they are built."""
    return cache_folder() / f"kernels-{target.triple}-{_key(target)}"


def sources() -> Path:
    """The folder with the kernels' sources and their Makefile. Raises ``ToolchainError``."""
    for folder in (_SOURCE_TREE, RUNTIME / "src"):
        if (folder / "Makefile").is_file() and (folder / "kernels").is_dir():
            return folder
    raise ToolchainError("the kernels' sources are missing; reinstall the package")


def _key(target: Target) -> str:
    """A hash of the sources and of what the compiler says of itself."""
    digest = hashlib.sha256()
    root = sources()
    for path in sorted(root.rglob("*")):
        if path.suffix in (".c", ".h") or path.name == "Makefile":
            if "build" in path.relative_to(root).parts[0]:
                continue
            digest.update(str(path.relative_to(root)).encode() + b"\0")
            digest.update(path.read_bytes() + b"\0")
    command = [*target.compiler(), "--version"]
    digest.update(subprocess.run(command, capture_output=True, check=False).stdout)
    return digest.hexdigest()[:16]


def _build(target: Target, folder: Path) -> None:
    if missing := missing_to_build(target):
        raise ToolchainError(missing)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(folder.parent / f"kernels-{target.triple}.lock", "w") as lock:
            # Processes that need the kernels at the same time build them once.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _build_alone(target, folder)
    except OSError as error:
        raise ToolchainError(
            f"cannot keep the kernels for {target.name} in {folder.parent}: {error}; "
            "set XDG_CACHE_HOME to a folder that can be written"
        ) from error


def _build_alone(target: Target, folder: Path) -> None:
    # On the same file system, so that a finished build appears at once and whole.
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as name:
        built, objects = Path(name, "kernels"), Path(name, "build")
        if sources() == _SOURCE_TREE:  # there objects stay, and what did not change is not built
            objects = _SOURCE_TREE.parent / "build" / f"kernels-{target.triple}"
        command = ["make", "-s", "-C", str(sources()), "install", f"DEST={built}"]
        command += [f"BUILD={objects}", f"CC={' '.join(target.compiler())}"]
        command.append(f"AR={' '.join(target.archiver())}")
        command.append(f"-j{len(os.sched_getaffinity(0))}")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no message"]
            first = next((line for line in lines if "error" in line.lower()), lines[0])
            raise ToolchainError(f"building the kernels for {target.name} failed: {first}")
        built.rename(folder)
