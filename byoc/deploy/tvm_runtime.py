"""TVM's runtime libraries: found, loaded, and their threads.

Unless the process has imported TVM already, only ``libtvm_runtime`` is loaded (a few megabytes, a
few milliseconds), and ``libtvm_runtime_extra`` for models that need it; the compiler library and
TVM's Python package are not needed.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from byoc.arguments import MAX_THREADS, as_whole
from byoc.deploy.input_tensors import CPU
from byoc.errors import LoadError

if TYPE_CHECKING:
    import tvm_ffi

#: The runtime library that every model needs, and those that only some do.
CORE = "libtvm_runtime"
EXTRAS = ("libtvm_runtime_extra",)

_SHARE_ALL_CORES = -3  # runtime.config_threadpool's affinity mode
_FORKED_NO_EXEC = 0x40
_DEVICE_ID, _POOLED_ALLOCATOR = 0, 2

#: Times that a worker of TVM's pool yields its core before it sleeps: some milliseconds; TVM's
#: default of 300000 is a tenth of a second. Runs follow each other faster, so a lone caller loses
#: nothing; among many callers, workers that yield for long take up to half of the cores.
_SPINS = "3000"

#: Held while a thread makes its virtual machine: TVM's module changes maps of its own there.
_making_machine = threading.Lock()

#: Threads that pools have, None until ``size_pools``; and what each thread's pool has.
_threads: int | None = None


class _OwnPool(threading.local):
    """What the calling thread's pool was last told, and in which process."""

    threads: int | None = None
    process = 0
    #: The pool is that of the process that this one was forked from: its threads are not here.
    is_dead = False


_own = _OwnPool()
#: Held while an environment variable is set for TVM to read.
_environment = threading.Lock()


def load_runtime() -> None:
    """Load TVM's runtime library into the process, if TVM was not imported before.

    Raises ``LoadError`` where it is not installed.
    """
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", _SPINS)
    if "tvm" not in sys.modules:
        load_library(CORE)


def load_library(name: str) -> None:
    """Load one of TVM's runtime libraries. Raises ``LoadError`` where it is not installed."""
    folder = _package() / "lib"
    found = sorted(folder.glob(f"{name}.*"))
    if not found:
        raise LoadError(f"TVM's runtime library {name} is not in {folder}")
    importlib.import_module("tvm_ffi")  # loads libtvm_ffi, which they all need
    try:
        # Global, as TVM itself loads it: compiled models take their symbols from it.
        ctypes.CDLL(str(found[0]), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise LoadError(f"TVM's runtime library {name} cannot be loaded: {error}") from error


def load_extras() -> None:
    """Load all runtime libraries that are installed, for a model that does not say its needs."""
    if "tvm" not in sys.modules:
        for name in EXTRAS:
            if any((_package() / "lib").glob(f"{name}.*")):
                load_library(name)


def require_functions(library: str, names: Iterable[str]) -> None:
    """Load a runtime library unless the process has the packed functions that are wanted of it.

    Raises ``LoadError`` where the library is not installed or lacks one of them.
    """
    import tvm_ffi

    def missing() -> list[str]:
        return [n for n in names if tvm_ffi.get_global_func(n, allow_missing=True) is None]

    if not missing():
        return
    if library not in EXTRAS:
        raise LoadError(f"{library} is none of TVM's runtime libraries ({', '.join(EXTRAS)})")
    load_library(library)
    if lost := missing():
        raise LoadError(f"TVM's runtime library {library} lacks the function {lost[0]}")


def _package() -> Path:
    spec = importlib.util.find_spec("tvm")
    if spec is None or not spec.submodule_search_locations:
        raise LoadError("TVM is not installed; pip install 'apache-tvm>=0.27,<0.28'")
    return Path(next(iter(spec.submodule_search_locations)))


def runtime_version() -> tuple[str, str]:
    """Versions of the TVM that is installed and of its FFI library, such as ``0.27.0``, ``0.1.14``.

    Raises ``LoadError`` where TVM is not installed.
    """
    text = (_package() / "_version.py").read_text(encoding="utf-8")
    found = re.search(r"^__version__ = version = '([^']+)'", text, re.MULTILINE)
    ffi = importlib.import_module("tvm_ffi")
    return found.group(1) if found else "unknown", str(ffi.__version__)


def size_pools(threads: int) -> None:
    """Let TVM's pools use so many threads: that of this thread now, others' at their first use.

    A pool that this thread has from the process that it was forked from has no threads: what runs
    on it does so on this thread alone.  Raises ``LoadError`` where this thread's pool has fewer and
    cannot grow, and for a number that is out of bounds.
    """
    global _threads
    threads = as_whole(threads, "threads", LoadError, 1, MAX_THREADS)
    # Room for a later call that asks for more; threads that are not used sleep.
    available = _size_own(threads, room=max(threads, os.cpu_count() or 1))
    if available is not None and available < threads:
        raise LoadError(
            f"cannot use {threads} threads: TVM's pool was built with {available} before; "
            "load the model before anything runs, or set TVM_NUM_THREADS"
        )
    _threads = threads


def pools_are_sized() -> bool:
    """Whether ``size_pools`` has been called, or the environment says how large pools are.

    Raises ``LoadError`` where that is no number, or out of bounds, as TVM asks for neither.
    """
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "").strip()
        first = text.partition(",")[0].strip()  # OpenMP has lists: one number for each level
        if text:
            as_whole(int(first) if first.isdecimal() else text, name, LoadError, 0, MAX_THREADS)
    named = os.environ.keys() & {"TVM_NUM_THREADS", "OMP_NUM_THREADS"}
    return _threads is not None or bool(named)


def size_own_pool() -> None:
    """Give the calling thread's pool the size that ``size_pools`` was told, where it was.

    Each thread that calls into TVM has a pool of its own, by TVM's default of half the cores.  A
    server has many such threads, so each pool has no more threads than it uses: one that was made
    before ``size_pools`` was told more keeps what it has.
    """
    if _own.process != os.getpid() or _own.threads != _threads:
        _size_own(_threads, room=_threads)


def _size_own(threads: int | None, room: int | None) -> int | None:
    """Let the pool of the calling thread use so many threads; how many it can use then.

    None as number leaves that to TVM.  The answer is None for a pool without threads, which is told
    to use none.

    TVM builds a pool at its first use, with half as many threads as there are logical cores unless
    it is told a number first, even where these are no hyper-threads.  It can shrink it later but
    not let it grow, so it is built for ``room`` threads.  They are left free to move between cores:
    pinned ones would meet those of other processes.
    """
    import tvm_ffi

    process = os.getpid()
    may_inherit = _own.process != process and _is_main_thread() and _is_forked()
    _own.is_dead |= may_inherit and _own.process != 0
    count = None
    if not _own.is_dead and (may_inherit or threads is not None):
        before = _thread_count()
        try:
            for size in dict.fromkeys((room, threads)):
                if size is not None:
                    configure_pool(size)
            count = int(tvm_ffi.get_global_func("runtime.NumThreads")())
        except RuntimeError as error:
            what = str(error).splitlines()[0]
            raise LoadError(f"cannot start {room} threads: {what}") from error
        _own.is_dead = may_inherit and _thread_count() == before < count
    if _own.is_dead:
        configure_pool(1, leave_unbound=True)
    _own.threads, _own.process = threads, process
    return None if _own.is_dead else count


def configure_pool(threads: int, leave_unbound: bool = False) -> None:
    """Let TVM's pool of the calling thread use so many threads, and build it where it is not yet.

    A pool that is built cannot grow.  Threads are bound to cores where ``TVM_BIND_THREADS`` asks
    for it, and never with ``leave_unbound``.  Raises ``RuntimeError`` where they cannot be started.
    """
    import tvm_ffi

    configure = tvm_ffi.get_global_func("runtime.config_threadpool")
    with _environment:
        bind = os.environ.get("TVM_BIND_THREADS")
        os.environ["TVM_BIND_THREADS"] = "0" if leave_unbound else bind or "0"
        try:
            # Of the list of cores only the length matters where threads are not bound.
            configure(_SHARE_ALL_CORES, threads, [str(core) for core in range(threads)])
        finally:
            if bind is None:
                del os.environ["TVM_BIND_THREADS"]
            else:
                os.environ["TVM_BIND_THREADS"] = bind


def _is_main_thread() -> bool:
    """Whether the thread has the process's number: the one that forked, in a child."""
    return threading.get_native_id() == os.getpid()


def _is_forked() -> bool:
    """Whether the process has not left the program that it was forked from (proc(5), ``flags``)."""
    return bool(_stat_field(9) & _FORKED_NO_EXEC)


def _thread_count() -> int:
    return _stat_field(20)


def _stat_field(number: int) -> int:
    """A field of the process's entry in /proc, counted from 1; 0 where there is none."""
    try:
        text = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[number - 3])


def start_machine(module: tvm_ffi.Module) -> tvm_ffi.Module:
    """A virtual machine for a loaded library, wherever that is; its function ``main`` runs it."""
    with _making_machine:
        machine = module["vm_load_executable"]()
        machine["vm_initialization"](CPU, _DEVICE_ID, _POOLED_ALLOCATOR)
    return machine


def start_runtime(threads: int) -> None:
    """Load TVM's runtime into the process and let its pool use so many threads, as ``load`` does.

    Raises ``LoadError``.
    """
    load_runtime()
    size_pools(threads)
