"""Objects and the kernels inside them as a shared library."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from codegen_cc.errors import ToolchainError
from codegen_cc.link.objects import undefined
from codegen_cc.link.toolchain import telling_line
from codegen_cc.target import HOST, Target

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
