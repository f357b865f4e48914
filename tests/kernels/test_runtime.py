"""Instruction sets, threads and scratch memory."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import abi
from codegen_cc.runtime_files import runtime_file
from codegen_cc.target import HOST
from tests.kernels.guest import GuestLibrary

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["sse9", "AVX512", "avx512 "])
def test_unknown_instruction_set_is_named(tmp_path: Path, name: str) -> None:
    lib = abi.load_level(name, tmp_path)
    error = lib.ext_isa_error().decode()
    assert "\n" not in error
    assert error.startswith(f"BYOC_ISA={name}: unknown instruction set; this CPU runs baseline")
    assert lib.ext_isa_name() == b"baseline"


def test_best_level_without_the_variable(
    tmp_path: Path, levels: dict[str, ctypes.CDLL], monkeypatch: pytest.MonkeyPatch
) -> None:
    usable = [level for level in abi.LEVELS if levels[level].ext_isa_error() is None]
    monkeypatch.delenv("BYOC_ISA", raising=False)
    lib = abi.load_level("", tmp_path)
    assert lib.ext_isa_error() is None
    assert lib.ext_isa_name().decode() == usable[-1]


@pytest.mark.parametrize("size", [0, 1, 100, 1 << 20])
def test_workspace_is_aligned(lib: ctypes.CDLL, size: int) -> None:
    memory = lib.ext_workspace_alloc(size)
    assert memory and memory % abi.ALIGN == 0
    if not isinstance(lib, GuestLibrary):  # whose memory is its own
        ctypes.memset(memory, 0xFF, size)
    lib.ext_workspace_free(memory)
    lib.ext_workspace_free(None)


def test_workspace_that_cannot_be_had(lib: ctypes.CDLL) -> None:
    assert lib.ext_workspace_alloc((1 << 64) - 8) is None


_BODY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def _needs_a_callback(lib: ctypes.CDLL) -> None:
    if isinstance(lib, GuestLibrary):
        pytest.skip("a guest cannot call a Python function")


@pytest.mark.parametrize(("n", "grain"), [(0, 1), (1, 1), (10, 3), (1000, 7), (5, 100), (9, 0)])
def test_parallel_for_covers_the_range_once(lib: ctypes.CDLL, n: int, grain: int) -> None:
    _needs_a_callback(lib)
    hits = np.zeros(n, np.int32)

    @_BODY
    def body(_context: int, begin: int, end: int) -> int:
        hits[begin:end] += 1
        return 0

    assert lib.ext_parallel_for(n, grain, ctypes.cast(body, ctypes.c_void_p), None) == 0
    assert (hits == 1).all()


def test_parallel_for_returns_a_bodys_status(lib: ctypes.CDLL) -> None:
    _needs_a_callback(lib)
    body = _BODY(lambda _context, begin, end: 2 if begin <= 5 < end else 0)
    assert lib.ext_parallel_for(10, 2, ctypes.cast(body, ctypes.c_void_p), None) == 2


def test_no_newer_c_library_is_needed_than_tvms_wheels_need() -> None:
    """Whichever one the kernels were compiled with: a model runs on older systems than this one."""
    command = [HOST.tool("nm"), "-D", str(runtime_file("lib/libext_kernels.so"))]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"@GLIBC_([0-9.]+)", listed)}
    assert "pthread_create@GLIBC" in listed and max(versions) <= (2, 28)


#: Runs in a process of its own: loads TVM's runtime first, so that the kernels find its pool.
_POOL_SCRIPT = """
import _ctypes, ctypes, os, sys, time
import numpy as np
for path in sys.argv[2:]:
    ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
from benchmarks import abi
lib = abi.load()
threads = int(sys.argv.pop(1))
assert lib.ext_num_threads() == threads, lib.ext_num_threads()

body_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
hits = np.zeros(1000, np.int32)

@body_type
def inner(context, begin, end):
    hits[begin:end] += 1
    return 0

@body_type
def outer(context, begin, end):
    assert lib.ext_num_threads() == 1
    for i in range(begin, end):
        lib.ext_parallel_for(100, 10, ctypes.cast(inner, ctypes.c_void_p), None)
    return 0

assert lib.ext_parallel_for(8, 1, ctypes.cast(outer, ctypes.c_void_p), None) == 0
assert hits[:100].sum() == 800, hits[:100]
failing = body_type(lambda context, begin, end: 2)
assert lib.ext_parallel_for(50, 1, ctypes.cast(failing, ctypes.c_void_p), None) == 2

rng = np.random.default_rng(0)
for m, n, k in ((49, 512, 700), (300, 200, 100), (1, 3000, 300), (700, 48, 64), (2, 4096, 256)):
    a = rng.uniform(-1, 1, (m, k)).astype(np.float32)
    b = rng.uniform(-1, 1, (k, n)).astype(np.float32)
    y = np.full((m, n), np.nan, np.float32)
    p = abi.MatmulParams(m=m, n=n, k=k, a_row=k, a_col=1, b_row=n, b_col=1, y_row=n)
    for function, right in ((lib.ext_matmul_packed, abi.pack_panels(b)), (lib.ext_matmul, b)):
        y[...] = np.nan
        assert function(p, a.ctypes.data, right.ctypes.data, abi.Epilogue(), y.ctypes.data) == 0
        np.testing.assert_allclose(y, a.astype(np.float64) @ b, rtol=0, atol=1e-4)
x = rng.uniform(-1, 1, 1 << 18).astype(np.float32)
y = np.empty_like(x)
assert lib.ext_unary(abi.activation("neg"), x.size, x.ctypes.data, y.ctypes.data) == 0
np.testing.assert_array_equal(y, -x)

# Without the library there are no threads of its pool, which would run what is unmapped.
def tasks():
    return len(os.listdir("/proc/self/task"))

before, end = tasks(), time.monotonic() + 5
_ctypes.dlclose(lib._handle)
while tasks() > before - (threads - 1) and time.monotonic() < end: time.sleep(0.001)
assert tasks() == before - (threads - 1), (before, tasks())
assert "libext_kernels" not in open("/proc/self/maps").read()
print("pool works")
"""


def _tvm_libraries() -> list[str]:
    folders = []
    for package in ("tvm_ffi", "tvm"):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            pytest.skip(f"{package} is not installed")
        folders.append(Path(spec.origin).parent / "lib")
    return [str(folders[0] / "libtvm_ffi.so"), str(folders[1] / "libtvm_runtime.so")]


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_on_as_many_threads_as_tvm(threads: int) -> None:
    if threads > len(os.sched_getaffinity(0)):
        pytest.skip(f"needs {threads} cores")
    environment = {**os.environ, "TVM_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", _POOL_SCRIPT, str(threads), *_tvm_libraries()],
        env=environment, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "pool works"
