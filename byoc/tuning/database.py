"""The tuning database: one JSON file of races by machine and signature.

``{"schema": 1, "machines": {"<CPU>, avx512, 1 thread": {"<signature>": {"<library>": {...}}}}}``

Reading never fails: what is wrong with a file becomes one warning, and nothing is known then.
Writing merges with what other processes wrote meanwhile, under a lock, and replaces the file whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from byoc.errors import TuningError
from codegen_cc.cache import cache_folder
from codegen_cc.libraries.measured_choice import Race, Tuning, TuningWarning

#: Version of the file's form, and of what signatures and times mean.
SCHEMA = 1

#: Races by signature, by machine.
Machines = dict[str, dict[str, Race]]


class _Broken(Exception):
    """Why a file is no tuning database of this version."""


def default_path() -> Path:
    """``$XDG_CACHE_HOME/byoc/tuning.json``, else ``~/.cache/byoc/tuning.json``."""
    return cache_folder() / "tuning.json"


def machine_key(threads: int) -> str:
    """What times depend on besides layer and library: CPU, instruction set in use, threads."""
    from byoc.machine import cpu_name
    from codegen_cc.instruction_sets import kernels_here

    isa = kernels_here().ext_isa_name().decode()
    return machine_name(f"{cpu_name()}, {isa}", threads)


def machine_name(machine: str, threads: int) -> str:
    """``machine_key`` for a machine by its CPU and instruction set in use."""
    return f"{machine}, {threads} thread{'' if threads == 1 else 's'}"


def read(path: str | os.PathLike[str], machine: str) -> Tuning:
    """The races of a machine. Warns (``TuningWarning``), once, where there are none to be had."""
    path = Path(path)
    try:
        machines = _read(path)
    except FileNotFoundError:
        _warn(f"tuning database {path} does not exist; byoc tune MODEL writes one")
        machines = {}
    except (_Broken, OSError) as error:
        _warn(f"tuning database {path} is ignored: {error}; byoc tune writes a new one")
        machines = {}
    if machines and machine not in machines:
        others = "; ".join(sorted(machines))
        _warn(f"tuning database {path} is ignored: it has no times of {machine} (but of {others})")
    return Tuning(machines.get(machine, {}), str(path))


def machine_like(path: str | os.PathLike[str], part: str, threads: int) -> str:
    """The machine of a database whose name has a text in it, at a number of threads.

    Raises ``TuningError`` where that is none or several, or the file is no database.
    """
    try:
        machines = _read(Path(path))
    except (_Broken, OSError) as error:
        raise TuningError(f"cannot read tuning database {path}: {error}") from error
    found = [name for name in machines if name == machine_name(name.rpartition(", ")[0], threads)]
    like = [name for name in found if part.casefold() in name.casefold()]
    if len(like) != 1:
        what = "several machines" if like else "no machine"
        among = "; ".join(like or found or machines) or "nothing"
        raise TuningError(
            f"tuning database {path} has {what} like {part!r} with {threads} thread"
            f"{'' if threads == 1 else 's'}; it has times of {among}"
        )
    return like[0]


def races_of(path: Path, machine: str) -> dict[str, Race]:
    """The races of a machine, without a warning where there are none: for whoever writes next."""
    try:
        return _read(path).get(machine, {})
    except (_Broken, OSError):
        return {}


def require_writable(path: Path) -> None:
    """Raise ``TuningError`` where a database cannot be; makes its folder."""
    if path.suffix != ".json":
        raise TuningError(f"cannot write tuning database {path}: the name must end in .json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TuningError(f"cannot write tuning database {path}: {error}") from error
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        what = "it is a folder" if path.is_dir() else f"folder {path.parent} is not writable"
        raise TuningError(f"cannot write tuning database {path}: {what}; give another --db")


def merge(path: Path, machine: str, races: Mapping[str, Race]) -> None:
    """Add races of a machine to the file; equal signatures are replaced, everything else stays.

    A file that is no database of this version is kept as ``<name>.broken``, with a warning.
    Raises ``TuningError`` where the file cannot be written; it is then as it was.
    """
    try:
        with _locked(path.parent):
            machines = _read_or_set_aside(path)
            machines.setdefault(machine, {}).update(races)
            _write(path, machines)
    except OSError as error:
        raise TuningError(f"cannot write tuning database {path}: {error}") from error


def _read(path: Path) -> Machines:
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Broken(f"it is no JSON ({error})") from error
    if not isinstance(raw, dict) or "schema" not in raw:
        raise _Broken("it is JSON of something else; a tuning database begins with its schema")
    if raw["schema"] != SCHEMA:
        raise _Broken(f"it has schema {raw['schema']!r:.20}, and this version reads {SCHEMA}")
    try:
        return {
            str(machine): {key: Race.from_json(race) for key, race in races.items()}
            for machine, races in raw["machines"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _Broken(f"an entry is damaged ({type(error).__name__}: {error})") from error


def _read_or_set_aside(path: Path) -> Machines:
    try:
        return _read(path)
    except FileNotFoundError:
        return {}
    except _Broken as error:
        aside = path.with_name(path.name + ".broken")
        path.replace(aside)
        _warn(f"tuning database {path} is replaced: {error}; the old file is now {aside.name}")
        return {}


def _write(path: Path, machines: Machines) -> None:
    raw: dict[str, Any] = {
        "schema": SCHEMA,
        "machines": {
            machine: {key: races[key].to_json() for key in sorted(races)}
            for machine, races in sorted(machines.items())
        },
    }
    # In the same folder, hence on the same file system: the replacement is atomic.
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            json.dump(raw, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder itself: a lock file would stay behind."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _warn(text: str) -> None:
    warnings.warn(text, TuningWarning, stacklevel=3)
