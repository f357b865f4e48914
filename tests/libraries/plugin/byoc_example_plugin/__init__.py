"""A kernel library in a package: its C source travels along and is compiled with each model."""

from pathlib import Path

from byoc.library import Kernel, Library, Link

HERE = Path(__file__).resolve().parent

LIBRARY = Library(
    "example_plugin",
    version="0.3",
    abi=1,
    link=Link(headers=("plugin.h",), include_dirs=(HERE,), sources=(HERE / "plugin.c",)),
    kernels=[Kernel("matmul", "plugin_matmul", ("lhs", "rhs", "output", "m", "n", "k"))],
)
