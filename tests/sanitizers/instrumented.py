"""A pytest plugin: kernels and generated C compiled with sanitizers take the place of the others.

    python -m tests.sanitizers --help

starts pytest with it.  ``BYOC_INSTRUMENTED`` is the folder where such kernels are installed.
"""

from __future__ import annotations

import os
from pathlib import Path

from codegen_cc import runtime_files
from codegen_cc.link import toolchain

#: GCC's, for kernels and generated C; undefined behaviour is printed, and the test goes on.
FLAGS = ("-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-O1", "-g1")


def pytest_configure() -> None:
    """Before any test asks for a library."""
    folder = Path(os.environ["BYOC_INSTRUMENTED"])
    runtime_files.RUNTIME = folder
    toolchain.C_FLAGS = (*toolchain.C_FLAGS, *FLAGS)
