"""The AArch64 kernels under QEMU: what the case list does not show, and that faults are told."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks import abi
from codegen_cc.instruction_sets import table
from codegen_cc.link.foreign_kernels import kernel_file
from tests.kernels.conftest import AARCH64
from tests.kernels.guard import assert_close, at_page_end
from tests.kernels.guest import GuestError, GuestLibrary, SharedMemory

pytestmark = pytest.mark.skipif(not AARCH64.is_foreign, reason="this machine is AArch64 itself")
Start = Callable[..., GuestLibrary]


@pytest.fixture
def start(shared_memory: SharedMemory, tmp_path: Path) -> Iterator[Start]:
    """Start a guest of its own: ``start(level, threads)``."""
    started: list[GuestLibrary] = []

    def begin(level: str = "", threads: int = 1) -> GuestLibrary:
        try:
            started.append(GuestLibrary(AARCH64, shared_memory, tmp_path, level, threads))
        except GuestError as error:
            pytest.skip(str(error))
        return started[-1]

    with shared_memory.in_use():
        yield begin
    for guest in started:
        guest.close()


def test_neon_is_what_the_guest_runs_by_itself(start: Start) -> None:
    guest = start()
    assert guest.ext_isa_error() is None
    assert guest.ext_isa_name() == b"neon"
    assert table()[guest.ext_isa_level()].name == "neon"


@pytest.mark.parametrize(
    ("level", "why"),
    [
        ("avx2", "no kernels of this architecture"),
        ("baseline", "no kernels of this architecture"),
        ("sve9", "unknown instruction set"),
    ],
)
def test_another_level_is_refused(start: Start, level: str, why: str) -> None:
    guest = start(level)
    assert guest.ext_isa_error().decode() == f"BYOC_ISA={level}: {why}; this CPU runs neon"


def test_reading_past_an_array_is_seen(start: Start) -> None:
    guest = start()
    x, y = at_page_end(np.ones(8)), at_page_end(np.zeros(16))
    relu = abi.activation("relu")
    with pytest.raises(GuestError, match="ended in ext_unary"):
        guest.ext_unary(relu, 9, x.ctypes.data, y.ctypes.data)
    with pytest.raises(GuestError, match="ended in ext_unary"):
        guest.ext_unary(relu, 17, y.ctypes.data, y.ctypes.data)
    assert guest.ext_unary(relu, 8, x.ctypes.data, y.ctypes.data) == 0
    np.testing.assert_array_equal(y[:8], x)


def test_an_array_from_elsewhere_is_refused(start: Start) -> None:
    guest = start()
    x = (ctypes.c_float * 8)()
    with pytest.raises(GuestError, match="not in the shared memory"):
        guest.ext_unary(abi.activation(), 8, ctypes.addressof(x), None)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 3])
def test_products_on_several_threads(start: Start, threads: int) -> None:
    guest = start("neon", threads)
    assert guest.ext_num_threads() == threads
    rng = np.random.default_rng(0)
    for m, n, k in ((49, 512, 700), (300, 200, 100), (1, 3000, 300), (700, 48, 64), (2, 4096, 256)):
        a, b = rng.uniform(-1, 1, (m, k)), rng.uniform(-1, 1, (k, n))
        a, b = a.astype(np.float32), b.astype(np.float32)
        panels, y = abi.pack_panels(b), np.full((m, n), np.nan, np.float32)
        p = abi.MatmulParams(m=m, n=n, k=k, a_row=k, a_col=1, b_row=n, b_col=1, y_row=n)
        e = abi.Epilogue()
        for function, right in ((guest.ext_matmul_packed, panels), (guest.ext_matmul, b)):
            y[...] = np.nan
            assert function(p, a.ctypes.data, right.ctypes.data, e, y.ctypes.data) == 0
            assert_close(y, a.astype(np.float64) @ b, 1e-4)


def test_the_library_needs_libc_and_libm_alone(start: Start) -> None:
    start()
    library = kernel_file(AARCH64, "lib/libext_kernels.so")
    run = subprocess.run(
        [AARCH64.tool("readelf"), "-d", str(library)], capture_output=True, text=True, check=True
    )
    needed = {
        line.split("[")[1].rstrip("]") for line in run.stdout.splitlines() if "NEEDED" in line
    }
    assert needed <= {"libc.so.6", "libm.so.6"}
