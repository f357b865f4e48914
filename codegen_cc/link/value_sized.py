"""Packed functions that a model can bring along, in C, as no runtime library has them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import tvm

from codegen_cc.link.toolchain import build_object
from codegen_cc.runtime_files import runtime_file
from codegen_cc.target import HOST, Target

NON_MAX_SUPPRESSION = "ext.run.non_max_suppression"

#: The file of ``runtime/adapters`` that defines each.
VALUE_SIZED = {
    "relax.run.nonzero": "ext_value_sized.c",
    "relax.run.shape_to_tensor": "ext_value_sized.c",
    "relax.run.unique": "ext_value_sized.c",
    NON_MAX_SUPPRESSION: "ext_non_max_suppression.c",
}

#: These are loops over elements, not calls of kernels.
_LOOPS = "-O3"


def value_sized_modules(
    names: Iterable[str], target: Target = HOST
) -> Iterator[tvm.runtime.Module]:
    """Modules with some of the functions ``VALUE_SIZED``. Raises ``ToolchainError``."""
    wanted: dict[str, list[str]] = {}
    for name in names:
        wanted.setdefault(VALUE_SIZED[name], []).append(name)
    for file, functions in wanted.items():
        source = runtime_file(f"adapters/{file}").read_text(encoding="ascii")
        with tempfile.TemporaryDirectory(prefix="byoc_") as name:
            built = build_object(source, Path(name), target=target, optimised=_LOOPS)
            yield tvm.runtime.load_static_library(str(built), functions)
