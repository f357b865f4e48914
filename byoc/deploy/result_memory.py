"""Memory of results, which a model's next call takes again once nobody has them any more."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from sys import getrefcount
from typing import NamedTuple

import numpy as np

from byoc.deploy.input_tensors import aligned_place

#: What ``getrefcount`` tells of an object that a tuple holds and nothing else.
_PROBE = (object(),)
_ALONE = getrefcount(_PROBE[0])


#: Bytes from which on an array's alignment to a line of the cache is worth finding it.
_LARGE = 4096


class Wanted(NamedTuple):
    """An array that a result shall be written to."""

    shape: tuple[int, ...]
    dtype: np.dtype
    bytes: int


def wanted(shape: tuple[int, ...], dtype: np.dtype) -> Wanted:
    """An array of the shape and dtype."""
    return Wanted(shape, dtype, prod(shape) * dtype.itemsize)


class ResultMemory:
    """The results of the last call.

    To find an aligned place takes longer than what a small network computes, and of large ones the
    system gives pages that it clears anew (the logits of 512 tokens: 250 of 780 ms on a virtual
    machine). An array that a caller still has, or a view of it, is never given again: all of them
    hold on to the memory that they lie in. Any number of threads may ask.
    """

    def __init__(self) -> None:
        #: Memory, where an aligned array begins in it, and the bytes that there are from there on.
        self._kept: list[tuple[np.ndarray, int, int]] = []
        self._lock = threading.Lock()

    def rooms(self, results: Sequence[Wanted]) -> list[np.ndarray]:
        """Arrays that are not filled, one for each result; those that are not small are aligned.

        Memory that was kept and is of no use now goes back to the system. Raises ``MemoryError``.
        """
        with self._lock:
            kept, self._kept = self._kept, []
            return [
                np.empty(shape, dtype) if size < _LARGE else self._room(shape, dtype, size, kept)
                for shape, dtype, size in results
            ]

    def _room(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
        size: int,
        kept: list[tuple[np.ndarray, int, int]],
    ) -> np.ndarray:
        """An array in one of the kept places, which is kept no longer there, or in a new one."""
        for i, place in enumerate(kept):
            if place[2] == size and getrefcount(place[0]) == _ALONE:
                del kept[i]
                break
        else:
            place = (*aligned_place(size), size)
        self._kept.append(place)
        return np.ndarray(shape, dtype, place[0], place[1])
