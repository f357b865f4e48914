"""What the examples of this folder share: a C compiler, a fresh process, a view of a tensor."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tvm_ffi.libinfo

HERE = Path(__file__).resolve().parent
_TEMPORARY = tempfile.TemporaryDirectory(prefix="doors-")
#: Where built files go; it is removed at exit.
FOLDER = Path(_TEMPORARY.name)

#: The compilers of each kind of source: the variable that names one, then what is looked for.
_COMPILERS = {".c": ("CC", "gcc", "clang", "cc"), ".cc": ("CXX", "g++", "clang++", "c++")}
_FLAGS = {".c": "-std=gnu11", ".cc": "-std=c++17"}


def compiler(suffix: str) -> str:
    """The compiler for ``.c`` or ``.cc``. Raises ``RuntimeError`` where there is none."""
    variable, *names = _COMPILERS[suffix]
    chosen = os.environ.get(variable, "").split()[:1] or names
    found = next(filter(None, map(shutil.which, chosen)), None)
    if found is None:
        raise RuntimeError(f"no compiler for {suffix}: tried {', '.join(chosen)}; install gcc, g++")
    return found


def build(source: str, *, shared: bool) -> Path:
    """Compile a file of this folder to ``.so`` (``shared``) or ``.o``, with TVM FFI's headers."""
    path = HERE / source
    target = FOLDER / f"{path.name}{'.so' if shared else '.o'}"
    include = tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path()
    flags = [_FLAGS[path.suffix], "-O3", "-fPIC", "-Wall", "-Wextra", "-shared" if shared else "-c"]
    flags += [word for folder in include for word in ("-isystem", folder)]
    subprocess.run([compiler(path.suffix), *flags, str(path), "-o", str(target)], check=True)
    return target


def run_fresh(library: Path, *arrays: np.ndarray) -> np.ndarray:
    """Run ``main`` of an exported library in a process with TVM's runtime alone (``fresh.py``).

    Nothing is preloaded there and no path is set. A PrimFunc writes its last argument, which is
    returned; a Relax function returns its result. Raises ``RuntimeError`` with the last message of
    a process that failed.
    """
    given, result = FOLDER / "arrays.npz", FOLDER / "result.npy"
    np.savez(given, *arrays)
    hidden = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    command = [sys.executable, "-I", HERE / "fresh.py", library, given, result]
    done = subprocess.run(
        [str(part) for part in command],
        env=env | {"TVM_USE_RUNTIME_LIB": "1"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"exit status {done.returncode}: {lines[-1]}")
    return np.load(result)


def view(tensor: Any) -> np.ndarray:
    """A float32 tensor that a packed function got, as an array on the same memory, any strides.

    ``numpy()`` copies, and refuses strides. ``np.from_dlpack`` must not be used there: compiled
    TIR passes borrowed tensors, on which DLPack's export ends the process. The view is valid until
    the function returns.
    """
    address = ctypes.cast(tensor.data_ptr(), ctypes.POINTER(ctypes.c_float))
    first = np.ctypeslib.as_array(address, (1,))
    strides = [4 * stride for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(first, tensor.shape, strides)
