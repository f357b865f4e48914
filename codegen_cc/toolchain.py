"""Toolchain: C and assembler text to one relocatable object.

The object holds the generated code, the packed weights and, pulled from the kernel archive, the
kernels that the code really calls.  All but the exported functions become local symbols, so that
any number of such objects can be linked into one library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from codegen_cc.errors import ToolchainError

RUNTIME = Path(__file__).resolve().parent / "_runtime"

C_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")


def compiler() -> str:
    """The C compiler: ``$CC``, else the first of gcc, clang and cc on the path.

    Raises ``ToolchainError`` naming the package to install where there is none.
    """
    wanted = os.environ.get("CC", "").split()
    for name in [wanted[0]] if wanted else ["gcc", "clang", "cc"]:
        found = shutil.which(name)
        if found:
            return found
    what = f"'{wanted[0]}' (from $CC)" if wanted else "gcc, clang or cc"
    raise ToolchainError(
        f"no C compiler: {what} is not on the path; install one, for example 'apt install gcc'"
    )


def _objcopy() -> str:
    found = shutil.which(os.environ.get("OBJCOPY", "objcopy")) or shutil.which("llvm-objcopy")
    if found is None:
        raise ToolchainError(
            "no objcopy on the path; install binutils, for example 'apt install binutils'"
        )
    return found


def runtime_file(relative: str) -> Path:
    """A file of the installed kernel runtime. Raises ``ToolchainError`` where it is missing."""
    path = RUNTIME / relative
    if not path.exists():
        raise ToolchainError(
            f"{relative} of the kernel runtime is missing; reinstall the package, or run "
            "'make -C runtime install DEST=<codegen_cc>/_runtime' in a source tree"
        )
    return path


def build_object(source: str, assembly: str | None, directory: Path) -> Path:
    """Compile C text (and assembler text) in ``directory`` to ``region.o``.

    Raises ``ToolchainError`` with the compiler's first message where a step fails.
    """
    import tvm_ffi.libinfo

    cc = compiler()
    header = runtime_file("include/ext_kernels.h").parent
    includes = [f"-I{header}", f"-I{tvm_ffi.libinfo.find_include_path()}"]
    includes.append(f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}")
    (directory / "region.c").write_text(source, encoding="ascii")
    _run([cc, *C_FLAGS, *includes, "-c", "region.c", "-o", "code.o"], directory)
    objects = ["code.o"]
    if assembly is not None:
        (directory / "weights.s").write_text(assembly, encoding="ascii")
        _run([cc, "-c", "weights.s", "-o", "weights.o"], directory)
        objects.append("weights.o")
    archive = str(runtime_file("lib/libext_kernels.a"))
    _run([cc, "-r", "-nostdlib", "-o", "region.o", *objects, archive], directory)
    _run([_objcopy(), "--localize-hidden", "region.o"], directory)
    return directory / "region.o"


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        first = next((line for line in lines if "error" in line.lower()), lines[0])
        raise ToolchainError(
            f"{Path(command[0]).name} failed on {command[-1]}: {first.strip()}; "
            "keep the generated source with --dump-code and compile it by hand"
        )
