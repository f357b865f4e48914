"""A kernel library that is wrong on purpose."""

from pathlib import Path

from byoc.library import Kernel, Library, Link

HERE = Path(__file__).parent

LIBRARY = Library(
    "wrong",
    version="1",
    abi=1,
    link=Link(headers=("wrong.h",), include_dirs=(HERE,), sources=(HERE / "wrong.c",)),
    kernels=[Kernel("matmul", "wrong_matmul", ("lhs", "rhs", "output", "m", "n", "k"))],
)
