"""Memory of large results, which a model's next call takes again once nobody has them any more."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from byoc.deploy.input_tensors import ALIGNMENT, address_of, aligned_room

#: Bytes from which on the C library asks the system for memory at each call and gives it back
#: (M_MMAP_THRESHOLD's greatest value): pages that are cleared anew, which on a virtual machine
#: takes longer than what a network computes (the logits of 512 tokens: 250 of 780 ms).
_LARGE = 32 << 20


class ResultMemory:
    """The large results of the last call.

    An array that a caller still has, or a view of it, is never given again. Any number of threads
    may ask.
    """

    def __init__(self) -> None:
        #: Memory, and what arrays that lie there hold on to: it is gone when all of them are.
        self._kept: list[tuple[np.ndarray, weakref.ref[Any]]] = []
        self._lock = threading.Lock()

    def rooms(self, wanted: Sequence[tuple[tuple[int, ...], np.dtype]]) -> list[np.ndarray]:
        """Aligned arrays that are not filled, one for each shape and dtype.

        Memory that was kept and is of no use now goes back to the system. Raises ``MemoryError``.
        """
        sizes = [prod(shape) * dtype.itemsize for shape, dtype in wanted]
        if not self._kept and all(size < _LARGE for size in sizes):
            return [aligned_room(shape, dtype) for shape, dtype in wanted]
        with self._lock:
            free = [memory for memory, holder in self._kept if holder() is None]
            self._kept = []
            return [
                aligned_room(shape, dtype) if size < _LARGE else self._room(shape, dtype, free)
                for (shape, dtype), size in zip(wanted, sizes, strict=True)
            ]

    def _room(self, shape: tuple[int, ...], dtype: np.dtype, free: list[np.ndarray]) -> np.ndarray:
        """An array in one of the free places, which is no longer free, or in a new one."""
        size = prod(shape) * dtype.itemsize + ALIGNMENT
        place = next((i for i, memory in enumerate(free) if memory.nbytes == size), None)
        memory = np.empty(size, np.uint8) if place is None else free.pop(place)
        holder = (ctypes.c_char * size).from_buffer(memory)
        self._kept.append((memory, weakref.ref(holder)))
        return np.ndarray(shape, dtype, holder, -address_of(memory) % ALIGNMENT)
