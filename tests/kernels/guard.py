"""Memory that ends at a page nobody may touch: a kernel that reads or writes past it crashes."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

_LIBC = ctypes.CDLL(None, use_errno=True)
_PROT_NONE = 0
#: Written around outputs; no kernel under test produces it.
SENTINEL = np.float32(777.25)

FloatArray = npt.NDArray[np.float32]


def forbid(address: int, size: int) -> None:
    """Take away all access to ``size`` bytes from ``address`` on, whole pages."""
    if _LIBC.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), _PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect failed")


def _guarded(usable: int) -> memoryview:
    memory = mmap.mmap(-1, usable + mmap.PAGESIZE)
    forbid(ctypes.addressof(ctypes.c_char.from_buffer(memory)) + usable, mmap.PAGESIZE)
    return memoryview(memory)[:usable]


_source: Callable[[int], Any] = _guarded


@contextlib.contextmanager
def pages_from(source: Callable[[int], Any]) -> Iterator[None]:
    """Take guarded memory from ``source``, which gives so many bytes before a forbidden page."""
    global _source
    before, _source = _source, source
    try:
        yield
    finally:
        _source = before


def at_page_end(values: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """Return a copy of ``values`` whose last element is the last before a forbidden page."""
    values = np.asarray(values, dtype)
    usable = -(-max(values.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    out = np.frombuffer(_source(usable), values.dtype, values.size, usable - values.nbytes)
    out = out.reshape(values.shape)
    out[...] = values
    return out


class Rows:
    """A [rows, columns] output whose rows are ``stride`` apart, sentinels in every gap.

    ``lead`` elements come before the first row and nothing after the last: writing there crashes.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        stride: int | None = None,
        lead: int = 5,
        dtype: npt.DTypeLike = np.float32,
    ) -> None:
        self.stride = columns if stride is None else stride
        self.sentinel = SENTINEL if np.dtype(dtype) == np.float32 else np.dtype(dtype).type(77)
        size = lead + max(0, rows - 1) * self.stride + columns if rows else lead
        self.memory = at_page_end(np.full(size, self.sentinel), dtype)
        each = self.memory.itemsize
        self.view = np.lib.stride_tricks.as_strided(
            self.memory[lead:], (rows, columns), (self.stride * each, each)
        )
        self.pointer = self.memory.ctypes.data + each * lead

    def check_gaps(self) -> None:
        """Fail when anything outside the rows has changed."""
        kept = self.view.copy()
        self.view[...] = self.sentinel
        changed = np.flatnonzero(self.memory != self.sentinel)
        self.view[...] = kept
        assert changed.size == 0, f"written outside the output, at elements {changed[:8]}"


def assert_close(got: npt.ArrayLike, want: npt.ArrayLike, tolerance: npt.ArrayLike) -> None:
    """Compare elementwise: |got - want| <= tolerance, NaN with NaN, infinities equal."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    tolerance = np.broadcast_to(np.asarray(tolerance, np.float64), want.shape)
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    with np.errstate(invalid="ignore"):
        good = (np.isnan(got) & np.isnan(want)) | (got == want) | (np.abs(got - want) <= tolerance)
    if good.all():
        return
    index = np.unravel_index(np.flatnonzero(~good)[0], want.shape)
    raise AssertionError(
        f"{(~good).sum()} of {good.size} values differ; the first at {tuple(map(int, index))}: "
        f"got {got[index]!r}, expected {want[index]!r}, limit {tolerance[index]:.3g}"
    )
