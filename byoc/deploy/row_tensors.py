"""Tensors of the first rows of rooms, of which each call has more.

A decoder has dozens of states, and a step of it leaves nothing of Python's in the caches: to make
tensors of 48 takes 70 us of a step then, to tell those that there are how many rows they have takes
17. So the first extent is written where the tensor keeps it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tvm_ffi

#: sizeof(TVMFFIObject) of tvm/ffi/c_api.h: a DLTensor lies behind (TVMFFITensorGetDLTensorPtr).
_HEADER = 24


class _DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class RowTensors:
    """Tensors of rooms with space for some rows each. Nobody else has them."""

    def __init__(self, tensors: Sequence[tvm_ffi.Tensor]) -> None:
        self._tensors = [*tensors]
        self._counts = [
            _DLTensor.from_address(tensor.__chandle__() + _HEADER).shape.contents
            for tensor in self._tensors
        ]

    def first(self, count: int) -> list[tvm_ffi.Tensor]:
        """Tensors of the first rows, until the next call."""
        for place in self._counts:
            place.value = count
        return self._tensors
