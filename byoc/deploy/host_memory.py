"""Memory of this process that a model's states lie in."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import tvm_ffi

from byoc.deploy.exchange import numpy_dtype, tensor_of
from byoc.deploy.input_tensors import address_of, aligned_room, without_elements
from byoc.deploy.large_pages import LARGE, MADV_HUGEPAGE, c_library
from byoc.deploy.row_tensors import RowTensors

#: Bytes from which on a state is read faster from large pages: 2 MB of keys and values in 67 us
#: instead of 104 on Zen 4. What lies behind the filled rows in such a page is memory in use, too.
_WORTH_LARGE = LARGE // 4
_MADV_COLLAPSE = 25  # asm-generic/mman-common.h of Linux


class HostMemory:
    """NumPy's arrays, which take memory as they are written.

    Those that may grow large begin at a large page: see ``enlarge``.
    """

    def room(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Aligned memory."""
        kind = numpy_dtype(dtype)
        size = prod(shape) * kind.itemsize
        if size < _WORTH_LARGE or sys.platform != "linux":
            return aligned_room(shape, dtype)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        whole = np.frombuffer(mmap.mmap(-1, _pages(size) + LARGE, flags), np.uint8)
        start = -address_of(whole) % LARGE
        return whole[start : start + size].view(kind).reshape(shape)

    def rows_worth_enlarging(self, room: np.ndarray) -> int:
        """From how many rows on ``enlarge`` pays; more than there are where it never does."""
        if room.nbytes < _WORTH_LARGE or sys.platform != "linux":
            return len(room) + 1
        return max(1, -(-_WORTH_LARGE * len(room) // room.nbytes))

    def enlarge(self, room: np.ndarray) -> None:
        """Ask for large pages under a room, those that are written included."""
        for advice in (MADV_HUGEPAGE, _MADV_COLLAPSE):  # an older system refuses the second
            c_library().madvise(address_of(room), _pages(room.nbytes), advice)

    def first(self, room: np.ndarray, count: int) -> np.ndarray:
        """A view."""
        return room[:count]

    def first_of(self, rooms: Sequence[np.ndarray]) -> Callable[[int], list[tvm_ffi.Tensor]]:
        """The same tensors each time, which are told how many rows they have."""
        return RowTensors([self.tensor(room) for room in rooms]).first

    def write(self, room: np.ndarray, array: np.ndarray | int) -> None:
        """Copy an array, or fill with a number."""
        room[...] = array

    def read(self, room: np.ndarray) -> np.ndarray:
        """The array itself."""
        return room

    def tensor(self, room: np.ndarray) -> tvm_ffi.Tensor:
        """A tensor in the array's memory."""
        return tensor_of(room if room.size else without_elements(room))


def _pages(size: int) -> int:
    """Bytes of whole large pages."""
    return -(-size // LARGE) * LARGE
