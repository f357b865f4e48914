"""Packed functions of TVM's Python package that a model can bring along, in C."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import tvm

from codegen_cc.link.toolchain import build_object
from codegen_cc.runtime_files import runtime_file
from codegen_cc.target import HOST, Target

#: What ``runtime/adapters/ext_value_sized.c`` defines.
VALUE_SIZED = ("relax.run.nonzero", "relax.run.shape_to_tensor", "relax.run.unique")


def value_sized_module(names: Iterable[str], target: Target = HOST) -> tvm.runtime.Module:
    """A module with some of the functions ``VALUE_SIZED``. Raises ``ToolchainError``."""
    source = runtime_file("adapters/ext_value_sized.c").read_text(encoding="ascii")
    with tempfile.TemporaryDirectory(prefix="byoc_") as name:
        built = build_object(source, Path(name), target=target)
        return tvm.runtime.load_static_library(str(built), list(names))
