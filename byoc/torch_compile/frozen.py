"""Weights that went into a library, and whether they still are what they were."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

#: A number of as many bytes as an element has.
_CELLS = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}


class Frozen:
    """A tensor that a library has a copy of.

    PyTorch counts what is written to a tensor, but not through ``.data`` or NumPy, nor to tensors
    made for inference. So a few elements are looked at as well, which tell that a whole tensor was
    written; they take less than a microsecond.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self._start, self._version = tensor.data_ptr(), _version(tensor)
        kind = _CELLS.get(tensor.element_size())
        places = _places(tensor) if kind is not None and self._start else ()
        self._cells = [kind.from_address(self._start + place) for place in places]
        self._bits = [cell.value for cell in self._cells]

    def is_of(self, given: Any) -> bool:
        """Whether this tensor is given, be it as it was or not."""
        return given is self._tensor

    def is_still(self, given: Any) -> bool:
        """Whether a graph is given this tensor as it was."""
        tensor = self._tensor
        return (
            given is tensor
            and tensor.data_ptr() == self._start
            and _version(tensor) == self._version
            and [cell.value for cell in self._cells] == self._bits
        )


def _version(tensor: torch.Tensor) -> int:
    """How often a tensor was written, where that is counted."""
    return -1 if tensor.is_inference() else tensor._version


def _places(tensor: torch.Tensor) -> tuple[int, ...]:
    """Where a few elements lie, in bytes from the first one: the ends, and the middle."""
    if not tensor.numel():
        return ()
    pairs = list(zip(tensor.shape, tensor.stride(), strict=True))
    last = sum((size - 1) * stride for size, stride in pairs)
    middle = sum(size // 2 * stride for size, stride in pairs)
    return tuple(place * tensor.element_size() for place in dict.fromkeys((0, middle, last)))
