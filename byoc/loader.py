"""Load a compiled library and run it, with TVM's runtime alone.

Unless the process has imported TVM already, only ``libtvm_runtime`` is loaded (a few megabytes, a
few milliseconds); the compiler library and TVM's Python package are not needed.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import struct
import sys
import tempfile
import threading
import warnings
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc.errors import ByocError
from byoc.extent import Extent, parse_extent

if TYPE_CHECKING:
    import tvm_ffi

#: The packed function inside the library that returns ``Metadata`` as JSON.
METADATA_FUNCTION = "byoc_metadata"
METADATA_VERSION = 1

_CPU, _DEVICE_ID, _POOLED_ALLOCATOR = 1, 0, 2
_ALIGNMENT = 64  # bytes; what TVM's compiled code and the kernels expect of every tensor
_SHARE_ALL_CORES = -3  # runtime.config_threadpool's affinity mode
_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"

_pool_was_sized = False

#: Device, inode and time of change of the file that a path was first opened with.
_opened: dict[Path, tuple[int, int, int]] = {}


class LoadError(ByocError):
    """A file is not a library that this package compiled, or TVM's runtime is missing."""


class InputError(ByocError):
    """An input does not fit the model: name, rank, shape, dtype or device."""


class RunError(ByocError, RuntimeError):
    """A kernel failed while a model ran, or a library that it needs is missing."""


@dataclass(frozen=True)
class TensorInfo:
    """Name, shape and dtype of a model's input or output; a symbolic axis has a text as extent."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    def __str__(self) -> str:
        name = self.name if self.name.isprintable() else repr(self.name)
        return f"{name}: {self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def smallest(self) -> tuple[int, ...]:
        """The shape of an input where every symbol is 1."""
        return tuple(e if isinstance(e, int) else _extent_of(e).at(1) for e in self.shape)


@dataclass(frozen=True)
class LibraryInfo:
    """A kernel library that a model uses: name, version, and how it is linked."""

    name: str
    version: str
    linked: str


@dataclass(frozen=True)
class Metadata:
    """What the compiler writes into the library for whoever loads it."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    threads: int | None = None
    libraries: tuple[LibraryInfo, ...] = ()

    def to_json(self) -> str:
        """One line of ASCII JSON."""
        return json.dumps(
            {
                "version": METADATA_VERSION,
                "inputs": [[info.name, info.shape, info.dtype] for info in self.inputs],
                "outputs": [[info.name, info.shape, info.dtype] for info in self.outputs],
                "threads": self.threads,
                "libraries": [asdict(library) for library in self.libraries],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Metadata:
        """Read ``to_json``'s text; raises ``ValueError`` for another version."""
        raw = json.loads(text)
        if raw["version"] != METADATA_VERSION:
            raise ValueError(f"metadata version {raw['version']}, need {METADATA_VERSION}")
        inputs, outputs = (
            tuple(TensorInfo(name, tuple(shape), dtype) for name, shape, dtype in raw[key])
            for key in ("inputs", "outputs")
        )
        libraries = tuple(LibraryInfo(**library) for library in raw.get("libraries", ()))
        return cls(inputs, outputs, raw["threads"], libraries)


class Model:
    """A compiled model.

    Call it with arrays in the order of ``inputs`` or by name, or use ``run`` with a dictionary.
    Inputs are NumPy arrays, or tensors in CPU memory that speak DLPack.  They must have exactly
    the model's shape and dtype: nothing is cast or broadcast.  Arrays that are not contiguous or
    not aligned to 64 bytes are copied first.  Results are NumPy arrays that the caller owns.

    One model may be used from many threads: each gets a virtual machine of its own.
    """

    def __init__(self, path: Path, module: tvm_ffi.Module, metadata: Metadata) -> None:
        self.path = path
        self.inputs = metadata.inputs
        self.outputs = metadata.outputs
        self.libraries = metadata.libraries
        self._module = module
        self._machines = threading.local()
        self._threads_checked = not self.libraries

    def __repr__(self) -> str:
        inputs, outputs = ("; ".join(map(str, infos)) for infos in (self.inputs, self.outputs))
        return f"<byoc.Model {self.path.name}: ({inputs}) -> ({outputs})>"

    def __call__(self, *args: Any, **kwargs: Any) -> np.ndarray | tuple[np.ndarray, ...]:
        """Run the model; returns its output, or a tuple when it has several."""
        if len(args) > len(self.inputs):
            raise InputError(
                f"{len(args)} inputs given; {self.path.name} takes {self._names(self.inputs)}"
            )
        given = {info.name: value for info, value in zip(self.inputs, args, strict=False)}
        if twice := sorted(given.keys() & kwargs.keys()):
            raise InputError(f"input {twice[0]!r} given twice, by position and by name")
        results = tuple(self.run(given | kwargs).values())
        return results[0] if len(results) == 1 else results

    def run(self, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        """Run the model on named arrays; returns the outputs by name.

        Raises ``InputError`` for a missing or unknown name, a wrong rank, shape, dtype or device.
        """
        results = self.invoke(self.tensors(inputs))
        return {
            info.name: np.array(np.from_dlpack(value))
            for info, value in zip(self.outputs, results, strict=True)
        }

    def tensors(self, inputs: dict[str, Any]) -> list[tvm_ffi.Tensor]:
        """Check named arrays and turn them into the tensors that ``invoke`` takes."""
        known = {info.name for info in self.inputs}
        if unknown := [name for name in inputs if name not in known]:
            raise InputError(
                f"unknown input {unknown[0]!r}; {self.path.name} takes {self._names(self.inputs)}"
            )
        if missing := [info for info in self.inputs if info.name not in inputs]:
            raise InputError(f"input {missing[0].name!r} is missing; it is {missing[0]}")
        symbols: dict[str, int] = {}
        return [_as_tensor(info, inputs[info.name], symbols) for info in self.inputs]

    def invoke(self, tensors: list[tvm_ffi.Tensor]) -> list[tvm_ffi.Tensor]:
        """Run on checked tensors without copying anything: what a benchmark should time."""
        machine = getattr(self._machines, "main", None)
        if machine is None:
            executable = self._module["vm_load_executable"]()
            executable["vm_initialization"](_CPU, _DEVICE_ID, _POOLED_ALLOCATOR)
            machine = self._machines.main = executable["main"]
        try:
            result = machine(*tensors)
        except RuntimeError as error:
            raise RunError(f"{self.path.name}: {_first_line(error)}") from error
        if not self._threads_checked:
            self._threads_checked = True
            for problem in self.thread_mismatches():
                warnings.warn(problem, RuntimeWarning, stacklevel=2)
        return [result] if len(self.outputs) == 1 else list(result)

    def function(self, name: str) -> tvm_ffi.Function:
        """A packed function of the compiled library, such as one that a kernel library exports.

        Raises ``LoadError`` where there is none of that name.
        """
        try:
            return self._module.get_function(name, query_imports=True)
        except AttributeError:
            raise LoadError(f"{self.path} has no packed function {name!r}") from None

    def thread_mismatches(self) -> list[str]:
        """One line for each library with threads of its own that will not use the pool's size.

        The libraries are opened for this, which raises where one is missing.
        """
        import tvm_ffi

        wanted = tvm_ffi.get_global_func("runtime.NumThreads")()
        problems = []
        for library in self.libraries:
            try:
                count = self._module.get_function(f"byoc_threads_{library.name}", True)
            except AttributeError:  # it has no threads of its own, or cannot tell their number
                continue
            if (found := count()) != wanted:
                problems.append(
                    f"library {library.name} uses {found} threads where {wanted} are asked for;"
                    " see its own limits and environment variables"
                )
        return problems

    @staticmethod
    def _names(infos: tuple[TensorInfo, ...]) -> str:
        return "; ".join(map(str, infos))


def load(path: str | os.PathLike[str], threads: int | None = None) -> Model:
    """Load a library that ``byoc.compile`` wrote.

    ``threads`` sets the size of TVM's thread pool, which all models of the process share.  Without
    it the environment variable TVM_NUM_THREADS decides; without that the first loaded model does,
    by what it was compiled with, else by the number of cores (hyper-threads not counted).
    Raises ``LoadError``.
    """

    path = Path(path)
    if not path.is_file():
        raise LoadError(f"cannot load {path}: no such file")
    if threads is not None and threads < 1:
        raise LoadError(f"cannot load {path}: threads={threads}; need 1 or more")
    if path.suffix != ".so":
        raise LoadError(f"cannot load {path}: need a library whose name ends in .so")
    _require_whole(path)
    _load_runtime()
    try:
        module = _open(path.resolve())
    except Exception as error:
        raise LoadError(f"cannot load {path}: {_first_line(error)}") from error
    metadata = _read_metadata(path, module)
    if threads is not None:
        _size_pool(threads)
    elif not _pool_was_sized and not os.environ.keys() & {"TVM_NUM_THREADS", "OMP_NUM_THREADS"}:
        _size_pool(metadata.threads or _cores())
    return Model(path, module, metadata)


def start_runtime(threads: int) -> None:
    """Load TVM's runtime into the process and let its pool use so many threads, as ``load`` does.

    Raises ``LoadError``.
    """
    _load_runtime()
    _size_pool(threads)


def _open(path: Path) -> tvm_ffi.Module:
    """Load the library that is at a path now.

    The dynamic linker knows libraries by name: asked again for one that was replaced meanwhile, it
    returns the old one. A replaced file is therefore opened by a name of its own.
    """
    import tvm_ffi

    status = path.stat()
    identity = (status.st_dev, status.st_ino, status.st_mtime_ns)
    if _opened.setdefault(path, identity) == identity:
        return tvm_ffi.load_module(str(path))
    with tempfile.TemporaryDirectory(prefix="byoc_") as folder:
        alias = Path(folder, path.name)
        alias.symlink_to(path)
        return tvm_ffi.load_module(str(alias))


def _size_pool(threads: int) -> None:
    """Let TVM's pool use so many threads.

    TVM builds a pool at its first use with half as many threads as there are logical cores, even
    where these are no hyper-threads, and can shrink it later but not let it grow.  So the pool of
    the calling thread is built for all cores first; threads that are not used sleep.  They are
    left free to move between cores: pinned ones would meet those of other processes.
    """
    import tvm_ffi

    global _pool_was_sized
    configure = tvm_ffi.get_global_func("runtime.config_threadpool")
    bind = os.environ.get("TVM_BIND_THREADS")
    os.environ["TVM_BIND_THREADS"] = bind or "0"
    try:
        for size in (max(threads, os.cpu_count() or 1), threads):
            # Of the list of cores only the length matters where threads are not bound.
            configure(_SHARE_ALL_CORES, size, [str(core) for core in range(size)])
    finally:
        if bind is None:
            del os.environ["TVM_BIND_THREADS"]
    available = tvm_ffi.get_global_func("runtime.NumThreads")()
    if available < threads:
        raise LoadError(
            f"cannot use {threads} threads: TVM's pool was built with {available} before; "
            "load the model before anything runs, or set TVM_NUM_THREADS"
        )
    _pool_was_sized = True


def _cores() -> int:
    """Physical cores that this process may use."""
    logical = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    try:
        siblings = {Path(_TOPOLOGY.format(core)).read_text(encoding="ascii") for core in logical}
    except OSError:
        siblings = set()
    return len(siblings) or len(logical) or os.cpu_count() or 1


def _require_whole(path: Path) -> None:
    """Refuse what is no 64-bit ELF file, or a cut-off one, which would kill the process.

    The section headers are the last thing in a file that a linker wrote: their offset and number
    (e_shoff, e_shentsize, e_shnum of the ELF header) tell how long it has to be.
    """
    with path.open("rb") as file:
        header = file.read(64)
    if len(header) < 64 or header[:5] != b"\x7fELF\x02":
        raise LoadError(f"cannot load {path}: it is not a 64-bit ELF library")
    order = "<" if header[5] == 1 else ">"
    (offset,) = struct.unpack_from(f"{order}Q", header, 40)
    entry, count = struct.unpack_from(f"{order}HH", header, 58)
    length, need = path.stat().st_size, offset + entry * count
    if length < need:
        raise LoadError(f"cannot load {path}: it is cut off, {length} of {need} bytes")


def _read_metadata(path: Path, module: tvm_ffi.Module) -> Metadata:
    try:
        function = module.get_function(METADATA_FUNCTION, query_imports=True)
    except AttributeError:
        raise LoadError(
            f"cannot load {path}: it holds no names of inputs and outputs; compile it with "
            "byoc.compile, or run it with tvm.runtime.vm.VirtualMachine"
        ) from None
    try:
        return Metadata.from_json(str(function()))
    except (KeyError, TypeError, ValueError) as error:
        raise LoadError(f"cannot load {path}: {_first_line(error)}") from error


def _load_runtime() -> None:
    """Load TVM's runtime library into the process, if TVM was not imported before."""
    if "tvm" in sys.modules:
        return
    spec = importlib.util.find_spec("tvm")
    if spec is None or not spec.submodule_search_locations:
        raise LoadError("TVM is not installed; pip install 'apache-tvm>=0.27,<0.28'")
    folder = Path(next(iter(spec.submodule_search_locations)), "lib")
    libraries = sorted(folder.glob("libtvm_runtime.*"))
    if not libraries:
        raise LoadError(f"TVM's runtime library libtvm_runtime is not in {folder}")
    importlib.import_module("tvm_ffi")  # loads libtvm_ffi, which libtvm_runtime needs
    # Global, as TVM itself loads it: compiled models take their symbols from it.
    ctypes.CDLL(str(libraries[0]), ctypes.RTLD_GLOBAL)


def _as_tensor(info: TensorInfo, value: Any, symbols: dict[str, int]) -> tvm_ffi.Tensor:
    """Check one input against the model and hand over its memory, or an aligned copy of it.

    ``symbols`` holds the extents that earlier inputs gave to symbolic axes.
    """
    import tvm_ffi

    array = _as_array(info, value)
    if array.dtype != info.dtype:
        raise InputError(
            f"input {info.name!r} has dtype {array.dtype}; need {info.dtype} (nothing is cast)"
        )
    if array.ndim != len(info.shape):
        raise InputError(
            f"input {info.name!r} has {array.ndim} axes, shape {list(array.shape)}; "
            f"need {len(info.shape)}, shape {_shape(info)}"
        )
    for axis, (extent, wanted) in enumerate(zip(array.shape, info.shape, strict=True)):
        if (problem := _misfit(axis, extent, wanted, symbols)) is not None:
            raise InputError(
                f"input {info.name!r} has shape {list(array.shape)}; need {_shape(info)}{problem}"
            )
    usable = array.flags.c_contiguous and array.flags.writeable
    if not usable or array.ctypes.data % _ALIGNMENT:
        array = _aligned_copy(array)
    return tvm_ffi.from_dlpack(array)


def _misfit(axis: int, extent: int, wanted: int | str, symbols: dict[str, int]) -> str | None:
    """None if an axis can have the extent, else what else there is to say about it.

    Notes in ``symbols`` what the symbol of a symbolic axis is.
    """
    if isinstance(wanted, int):
        return None if extent == wanted else ""
    form = _extent_of(wanted)
    value = form.solve(extent)
    if value is None:
        if str(form) == form.name:
            return f" with {form.name} of 1 or more"
        near = " or ".join(map(str, form.nearest(extent)))
        return f"; axis {axis} is {extent} and must be {form}, such as {near}"
    known = symbols.setdefault(form.name, value)
    return None if known == value else f" where {form.name} is {known}"


def _extent_of(text: str) -> Extent:
    """A symbolic axis as the compiler wrote it down; any other text is a symbol of that name."""
    try:
        return parse_extent(text)
    except ValueError:
        return Extent(text)


def _shape(info: TensorInfo) -> str:
    return f"[{', '.join(map(str, info.shape))}]"


def _as_array(info: TensorInfo, value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    device = getattr(value, "__dlpack_device__", None)
    if device is None:
        raise InputError(
            f"input {info.name!r} is a {type(value).__name__}; need a NumPy array or a tensor "
            "that speaks DLPack"
        )
    if device()[0] != _CPU:
        raise InputError(
            f"input {info.name!r} is on device {tuple(map(int, device()))}; need CPU memory"
        )
    return np.from_dlpack(value)


def _aligned_copy(array: np.ndarray) -> np.ndarray:
    size = prod(array.shape) * array.itemsize
    buffer = np.empty(size + _ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    aligned = buffer[start : start + size].view(array.dtype).reshape(array.shape)
    np.copyto(aligned, array)
    return aligned


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
