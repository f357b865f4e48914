"""Toolchain: C text to one relocatable object.

The object holds the generated code, what the kernel libraries bring and, pulled from their
archives, the kernels that the code really calls.  All but the packed functions become local
symbols, so that any number of such objects can be linked into one library.  The packed weights are
in an object of their own, which nothing here has to read (``codegen_cc.link.weights``).
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from codegen_cc.c_compiler import is_zig
from codegen_cc.errors import LibraryError, ToolchainError
from codegen_cc.link.foreign_kernels import kernel_archive
from codegen_cc.link.needs import Linked
from codegen_cc.link.objects import keep_global, undefined
from codegen_cc.link.opened_functions import OpenedFile, opened_files, opening, trampolines
from codegen_cc.link.system_libraries import not_in_system
from codegen_cc.runtime_files import runtime_file
from codegen_cc.target import HOST, Target

C_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")
#: A call that does not fit its prototype is an error; of the generated code alone, which includes
#: the headers of libraries: compilers before gcc 14 only warn of a number in place of a pointer.
_STRICT = tuple(
    f"-Werror={what}"
    for what in ("implicit-function-declaration", "int-conversion", "incompatible-pointer-types")
)
#: The checks of calls are in the kernels' archive, compiled before (ext_tvm_entry.h).
_APART = ("-DEXT_ENTRY_APART",)
_SOURCE = ("-c", "region.c", "-o", "code.o")
#: Lines of linkers, and TVM's before what they said, that tell no reason.
_NO_REASON = re.compile(r"^Compilation error:$|ld returned \d|linker command failed")
#: Starts of names that TVM's runtime or the linker define.
_ELSEWHERE = ("TVM", "_GLOBAL_OFFSET_TABLE_", "_TLS_MODULE_BASE_", "__tls_", "__dso_handle")


def compiler() -> tuple[str, ...]:
    """The first words of a command of the C compiler for this machine.

    Raises ``ToolchainError`` (see ``Target.compiler``).
    """
    return HOST.compiler()


def build_object(
    source: str,
    directory: Path,
    libraries: Sequence[Linked] = (),
    callers: Mapping[str, str] | None = None,
    weights: Collection[str] = (),
    target: Target = HOST,
    keep: Sequence[str] = ("__tvm_ffi_*",),
    runtime: Sequence[Path] = (),
    flags: Sequence[str] = (),
    optimised: str | None = None,
) -> Path:
    """Compile C text in ``directory`` to ``region.o``, ``optimised`` as the compiler's flag says,
    by default as little as calls of kernels need.

    ``libraries`` are the kernel libraries that the text calls, ``callers`` says of a function which
    library calls it for which composite, and ``weights`` are the symbols that another object will
    define.  Symbols that match none of the patterns ``keep`` become local.  ``runtime`` are
    archives that are searched before the kernels'; what they define takes the place of its parts.
    ``flags`` are for the link.
    Raises ``ToolchainError`` with the compiler's first message where a step fails, and
    ``LibraryError`` where a library lacks a file or a function.
    """
    import tvm_ffi.libinfo

    cc = target.compiler()
    links = [(found, found.link()) for found in libraries]
    includes = [f"-I{runtime_file('include/ext_kernels.h').parent}"]
    includes += [f"-I{tvm_ffi.libinfo.find_include_path()}"]
    includes += [f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}"]
    folders = [folder for _, link in links for folder in link.include_dirs]
    includes = [*dict.fromkeys([*includes, *(f"-I{folder.absolute()}" for folder in folders)])]
    (directory / "region.c").write_text(source, encoding="ascii")
    _run(
        [*cc, *C_FLAGS, *_STRICT, *_APART, optimised or _light(cc), *includes, *_SOURCE],
        directory,
    )
    objects = ["code.o"]
    archives: list[str] = []
    imports: list[OpenedFile] = []
    for found, link in links:
        built = _library_sources(cc, found, directory, includes)
        objects += built
        if found.name != "builtin":  # whose archive depends on the target
            archives += _library_archives(found)
        if link.shared:
            archive_needs = undefined(*map(Path, link.archives)) if link.archives else set()
            own = [directory / name for name in ["code.o", *built]]
            needed = undefined(*own) | archive_needs
            imports += opened_files(found.name, link.shared, needed)
    if imports:
        objects += _imports(target, imports, includes, directory)
    core = [*map(str, runtime), str(kernel_archive(target))]
    group = ["-Wl,--start-group", *dict.fromkeys([*archives, *core]), "-Wl,--end-group"]
    _run([*cc, "-r", "-nostdlib", *flags, "-o", "region.o", *objects, *group], directory)
    if any(found.name != "builtin" for found in libraries):
        missing = undefined(directory / "region.o").difference(weights)
        _require_defined(target, missing, libraries, callers or {})
    keep_global(directory / "region.o", keep)
    return directory / "region.o"


def require_linking(target: Target = HOST) -> None:
    """Raise ``ToolchainError`` where the compiler does not make objects, and one of several.

    TinyCC, which may be the ``cc`` of a system, makes programs and no such object.
    """
    with tempfile.TemporaryDirectory(prefix="byoc_") as folder:
        Path(folder, "region.c").write_text("int region;\n", encoding="ascii")
        _run([*target.compiler(), *C_FLAGS, *_SOURCE], Path(folder))
        group = ["-Wl,--start-group", "code.o", "-Wl,--end-group"]
        _run([*target.compiler(), "-r", "-nostdlib", "-o", "region.o", *group], Path(folder))


def _light(cc: Sequence[str]) -> str:
    """Generated code is calls of kernels: of a thousand, -O2 makes nothing faster, and takes 5.5
    seconds, -O1 2 and -Og 1.2.  By -Og Zig's understands that behaviour shall be checked.
    """
    return "-O1" if is_zig(cc) else "-Og"


def build_text_object(source: str, directory: Path, target: Target, keep: Sequence[str]) -> Path:
    """Compile C text that includes no header and calls no kernel to ``text.o``.

    ``keep`` is as in ``build_object``.  Raises ``ToolchainError``.
    """
    cc = target.compiler()
    (directory / "text.c").write_text(source, encoding="ascii")
    _run([*cc, *C_FLAGS, _light(cc), "-c", "text.c", "-o", "text.o"], directory)
    keep_global(directory / "text.o", keep)
    return directory / "text.o"


def _library_sources(
    cc: Sequence[str], found: Linked, directory: Path, includes: list[str]
) -> list[str]:
    """Compile the C files of a library; names of the objects."""
    objects = []
    for index, path in enumerate(found.link().sources):
        if not path.is_file():
            raise LibraryError(f"library {found.name}: source {path} does not exist")
        objects.append(f"{found.name}_{index}.o")
        flags = [*C_FLAGS, *found.link().cflags, *includes]
        _run([*cc, *flags, "-c", str(path.resolve()), "-o", objects[-1]], directory)
    return objects


def _library_archives(found: Linked) -> list[str]:
    for path in found.link().archives:
        if not path.is_file():
            raise LibraryError(
                f"library {found.name}: {path} does not exist; build the library first"
            )
    return [str(path.resolve()) for path in found.link().archives]


def _imports(
    target: Target, imports: list[OpenedFile], includes: list[str], directory: Path
) -> list[str]:
    cc = target.compiler()
    text = trampolines(imports, target.machine)
    (directory / "imports.s").write_text(text, encoding="ascii")
    (directory / "opening.c").write_text(opening(imports), encoding="ascii")
    _run([*cc, "-c", "imports.s", "-o", "imports.o"], directory)
    _run([*cc, *C_FLAGS, *includes, "-c", "opening.c", "-o", "opening.o"], directory)
    return ["imports.o", "opening.o"]


def _require_defined(
    target: Target, needed: set[str], libraries: Sequence[Linked], callers: Mapping[str, str]
) -> None:
    """Raise ``LibraryError`` for a function that the loaded model would miss."""
    missing = {name for name in needed if not name.startswith(_ELSEWHERE)}
    missing = not_in_system(missing, target)
    if missing:
        name = min(missing, key=lambda name: (name not in callers, name))
        others = [found.name for found in libraries if found.name != "builtin"]
        who = callers.get(name, f"library {', '.join(others)}")
        raise LibraryError(
            f"{who}: function {name} is in none of its files; add the source, archive or shared"
            " library that defines it to the library's Link"
        )


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    made = command[command.index("-o") + 1]
    if done.returncode != 0 or not Path(directory, made).is_file():
        advice = "keep the generated source with --dump-code and compile it by hand"
        if "-r" in command:  # nothing of the source's
            advice = "gcc, clang and zig can link that, by the variable CC"
        raise ToolchainError(
            f"{Path(command[0]).name} failed on {made}: {telling_line(done.stderr)}; {advice}"
        )


def telling_line(said: str) -> str:
    """The line of what a compiler or linker said that tells what was wrong, if one does.

    That a disk is full comes in a line before the one with "error".
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["no message"]
    # What only says that there was an error is not the line, if there is another.
    lines = [line for line in lines if not _NO_REASON.search(line)] or lines
    for sign in (os.strerror(errno.ENOSPC), "error"):
        if found := next((line for line in lines if sign.lower() in line.lower()), None):
            return found
    return lines[0]
