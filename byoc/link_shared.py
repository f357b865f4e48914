"""Objects and the kernels inside them as a shared library, and what TVM's exporter links with."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm.support.cc import create_shared

from byoc.errors import CompileError
from codegen_cc.c_compiler import INSTALL, is_zig, named_command
from codegen_cc.errors import ToolchainError
from codegen_cc.link.objects import undefined
from codegen_cc.link.toolchain import telling_line
from codegen_cc.target import HOST, Target

#: What TVM's exporter tries when neither CXX nor CC is set, in its order.
_LINKERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")
#: Starts of names that C++ needs of its library.
_CXX = ("_Z", "__cxa_", "__gxx_")


def is_all_of_c(files: Sequence[str]) -> bool:
    """Whether these are object files alone, none of which needs the library of C++.

    A compiler for C links them in half of the time: it does not read that library.
    """
    if not all(file.endswith(".o") for file in files):
        return False
    try:
        return not any(name.startswith(_CXX) for name in undefined(*map(Path, files)))
    except ToolchainError:  # of another format
        return False


def link_shared(
    objects: Sequence[Path],
    output: Path,
    target: Target = HOST,
    options: Sequence[str] = (),
    linker: Sequence[str] = (),
) -> Path:
    """Link objects of ``build_object`` into ``output``, by default with the target's compiler.

    Raises ``ToolchainError``.
    """
    command = [*(linker or target.compiler()), "-shared", "-fPIC", *options, "-o", str(output)]
    command += [*map(str, objects), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolchainError(f"cannot link {output.name}: {telling_line(done.stderr)}")
    return output


def require_linker(target: Target) -> None:
    """Raise ``ToolchainError`` or ``CompileError`` where the last step would find no compiler."""
    compiler = target.compiler()
    if target.is_foreign or is_zig(compiler):
        return
    candidates = _named_linker()[:1] or _LINKERS
    if not any(shutil.which(candidate) for candidate in candidates):
        raise CompileError(
            f"no C compiler found (looked for {', '.join(candidates)}); install the package gcc "
            f"(Debian, Ubuntu: apt install gcc) or {INSTALL}"
        )


def _named_linker() -> list[str]:
    """What the environment says that TVM's exporter links with, which takes one word of it."""
    return named_command("CXX", "CC")


def linker_of(target: Target) -> dict[str, Any]:
    """What TVM's exporter is told to link with."""
    compiler = target.compiler()
    own = target.is_foreign or is_zig(compiler)

    def link(
        output: str, objects: Sequence[str], options: Sequence[str] = (), **others: Any
    ) -> None:
        from codegen_cc.module import without_inert

        files = without_inert(objects)
        named = [] if own else _named_linker()
        if own or len(named) > 1 or (not named and is_all_of_c(files)):
            link_shared([Path(file) for file in files], Path(output), target, options, named)
        else:  # what TVM finds itself will do
            create_shared(output, files, list(options), **others)

    # TVM asks the function for the triple, for a network of which it compiles nothing itself.
    link.get_target_triple = lambda: target.triple  # type: ignore[attr-defined]
    return {"fcompile": link}
