"""Kernel libraries by name: the shipped ones, those of installed packages, those of files.

All of them are loaded the same way: a module is imported and its ``LIBRARY`` checked.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from codegen_cc.errors import LibraryError
from codegen_cc.libraries.interface import LIBRARY_ABI, KernelLibrary

#: Entry-point group of packages that bring a library; an entry is ``name = "module:LIBRARY"``.
GROUP = "byoc.libraries"

#: The shipped libraries: the module of each, whose ``LIBRARY`` it is.
SHIPPED = {name: f"codegen_cc.libraries.{name}:LIBRARY" for name in ("builtin", "cblas", "onednn")}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_loaded: dict[str, KernelLibrary] = {}
_files: dict[str, Path] = {}


def library(spec: str | KernelLibrary) -> KernelLibrary:
    """The library of that name, or in that file (a text that ends in ``.py``), or as given.

    Raises ``LibraryError`` where there is none, where it does not import, or where it was written
    for another version of the interface.
    """
    if not isinstance(spec, str):
        return _register(spec, f"library object {spec!r:.60}")
    if spec.endswith(".py"):
        return _from_file(Path(spec))
    if spec in _loaded:
        return _loaded[spec]
    entry = _entry(spec)
    if entry is None:
        raise LibraryError(
            f"no kernel library is called {spec!r}; known are {', '.join([*SHIPPED, *installed()])}"
            f" (or give the path of a .py file, or install a package with an entry point {GROUP})"
        )
    what = f"kernel library {spec} ({entry.value})"
    try:
        found = entry.load()
    except LibraryError:
        raise
    except (Exception, SystemExit) as error:
        raise LibraryError(f"{what} does not import: {_text(error)}") from error
    return _register(found, what, named=spec)


def installed() -> dict[str, EntryPoint]:
    """Entry points of installed packages by name."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _entry(name: str) -> EntryPoint | None:
    """Where the library of a name is. Raises ``LibraryError`` where several have that name."""
    found = [EntryPoint(name, SHIPPED[name], GROUP)] if name in SHIPPED else []
    found += entry_points(group=GROUP, name=name)
    values = list(dict.fromkeys(entry.value for entry in found))
    if len(values) > 1:
        raise LibraryError(
            f"two kernel libraries are called {name}: {' and '.join(values)}; uninstall one of the"
            " packages"
        )
    return found[0] if found else None


def _from_file(path: Path) -> KernelLibrary:
    path = path.resolve()
    what = f"library file {path}"
    for name, known in _files.items():
        if known == path:
            return _loaded[name]
    if not path.is_file():
        raise LibraryError(f"{what} does not exist")
    module_name = f"byoc_library_{abs(hash(path)):x}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickling look a class's module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise LibraryError(f"{what} does not import: {_text(error)}") from error
    if not hasattr(module, "LIBRARY"):
        raise LibraryError(f"{what} has no LIBRARY; bind your library object to that name")
    found = _register(module.LIBRARY, what)
    _files[found.name] = path
    return found


def _register(found: object, what: str, named: str | None = None) -> KernelLibrary:
    if getattr(found, "abi", LIBRARY_ABI) != LIBRARY_ABI:
        raise LibraryError(
            f"{what} is written for version {found.abi!r} of the library interface, this is version"
            f" {LIBRARY_ABI}; install versions that fit each other"
        )
    if not isinstance(found, KernelLibrary):
        missing = [
            name for name in dir(KernelLibrary) if name[0] != "_" and not hasattr(found, name)
        ]
        missing += [
            name
            for name in ("name", "version", "abi", "threads", "status_text")
            if not hasattr(found, name) and name not in missing
        ]
        raise LibraryError(
            f"{what} is no kernel library: it lacks {', '.join(missing)}"
            " (see codegen_cc/libraries/interface.py)"
        )
    if not isinstance(found.name, str) or not _NAME.fullmatch(found.name):
        raise LibraryError(f"{what} is called {found.name!r}; need a C identifier")
    if named is not None and found.name != named:
        raise LibraryError(f"{what} calls itself {found.name}; give both the same name")
    known = _loaded.get(found.name)
    if known is not None and known is not found:
        raise LibraryError(
            f"{what} is called {found.name}, as another loaded library is"
            f"{_origin(found.name)}; rename one of them"
        )
    if known is None and named is None and found.name in {*SHIPPED, *installed()}:
        raise LibraryError(f"{what} is called {found.name}, as an installed library is; rename it")
    _loaded[found.name] = found
    return found


def _origin(name: str) -> str:
    return f" ({_files[name]})" if name in _files else ""


def _text(error: BaseException) -> str:
    line = (str(error).strip() or "no message").splitlines()[0]
    return f"{type(error).__name__}: {line}"
