"""Finds a BLAS with the C interface on this machine, for the adapter ``cblas``.

Searched in this order; the first file that has ``cblas_sgemm`` with 32-bit sizes is taken:

1. ``$CBLAS_ROOT``: a library file (``.so``, or ``.a`` to link it into models), or a folder with one
   in it or in its ``lib`` folders; nothing else is searched then,
2. PyPI's ``scipy-openblas32``,
3. the ``lib`` folder of the Python environment: PyPI's ``mkl``, or what Conda installs,
4. the system's folders: OpenBLAS, MKL, BLIS.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from codegen_cc.errors import CodegenError, LibraryError
from codegen_cc.link.objects import defined_functions

#: The package that brings a BLAS, and how to get it.
PACKAGE = "scipy-openblas32"
REMEDY = "pip install 'tvm-byoc-ext[cblas]'"

#: Packages that do not write their version into the library's name.
_PACKAGES = {"libscipy_openblas": PACKAGE, "libmkl_rt": "mkl"}
#: Names of library files, the preferred first.
_STEMS = ("libscipy_openblas", "libopenblas", "libmkl_rt", "libblis", "libcblas")
_FOLDERS = ("", "lib", "lib64", f"lib/{sysconfig.get_config_var('MULTIARCH') or 'none'}")
_SYSTEM = ("/usr/local", "/usr", "/opt/intel/oneapi/mkl/latest")
#: What the names of functions may begin with.
_PREFIXES = ("", "scipy_")


@dataclass(frozen=True)
class Family:
    """How an implementation is told its number of threads; ``count`` is the C type of numbers."""

    name: str
    set_threads: str
    get_threads: str
    count: str = "int"


_FAMILIES = (
    Family("OpenBLAS", "openblas_set_num_threads", "openblas_get_num_threads"),
    Family("MKL", "MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
    Family("BLIS", "bli_thread_set_num_threads", "bli_thread_get_num_threads", "int64_t"),
)


@dataclass(frozen=True)
class Blas:
    """A BLAS: its file, the prefix of its functions, its family (None: threads are its own)."""

    path: Path
    prefix: str
    family: Family | None
    version: str

    @property
    def static(self) -> bool:
        """Whether the file is linked into models."""
        return self.path.suffix == ".a"


@cache
def find_blas() -> Blas:
    """The BLAS of this machine. Raises ``LibraryError`` with the remedy where there is none."""
    refused: list[str] = []
    for path in _candidates():
        found = _inspect(path)
        if isinstance(found, Blas):
            return found
        refused.append(found)
    root = os.environ.get("CBLAS_ROOT")
    if root:
        why = refused[0] if refused else "there is no such library or folder with one"
        raise LibraryError(f"kernel library cblas: CBLAS_ROOT={root}: {why}; name a BLAS")
    why = f" ({refused[0]})" if refused else ""
    raise LibraryError(
        f"kernel library cblas: no BLAS was found{why}; {REMEDY}, or set CBLAS_ROOT to one"
    )


def _candidates() -> Iterator[Path]:
    root = os.environ.get("CBLAS_ROOT")
    if root:
        path = Path(root)
        yield from [path] if path.is_file() else _files_below(path)
        return
    package = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    for folder in (package.submodule_search_locations or []) if package else []:
        yield from _files_below(Path(folder))
    for folder in (sys.prefix, *_SYSTEM):
        yield from _files_below(Path(folder))


def _files_below(root: Path) -> Iterator[Path]:
    folders = [root / name for name in _FOLDERS]
    for ending in (".so*", ".a"):
        for stem in _STEMS:
            for folder in folders:
                yield from sorted(p for p in folder.glob(stem + ending) if p.is_file())


def _inspect(path: Path) -> Blas | str:
    """The BLAS in a file, or why it is none."""
    try:
        functions = defined_functions(path, dynamic=path.suffix != ".a")
    except CodegenError as error:
        return str(error)
    prefix = next((p for p in _PREFIXES if f"{p}cblas_sgemm" in functions), None)
    if prefix is None:
        wide = any(re.search(r"cblas_sgemm_?64_?$", name) for name in functions)
        what = "has cblas_sgemm with 64-bit sizes only" if wide else "has no cblas_sgemm"
        return f"{path} {what}; need one with 32-bit sizes"
    for family in _FAMILIES:
        own = Family(
            family.name,
            *(prefix + name for name in (family.set_threads, family.get_threads)),
            family.count,
        )
        if {own.set_threads, own.get_threads} <= functions:
            return Blas(path, prefix, own, f"{own.name} {_version(path)}".strip())
    return Blas(path, prefix, None, path.name)


def _version(path: Path) -> str:
    """The version that the package or the file's name tells, or nothing."""
    package = _PACKAGES.get(path.name.partition(".")[0])
    if package is not None and path.is_relative_to(sys.prefix):
        with contextlib.suppress(PackageNotFoundError):
            return version(package)
    found = re.search(r"\d+\.\d+(\.\d+)*", path.resolve().name)
    return found.group() if found else ""
