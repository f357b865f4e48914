"""NumPy arrays as tensors of the runtime and back, in one memory.

NumPy's DLPack has no word for dtypes that are ``ml_dtypes``', such as bfloat16: these are handed
over as unsigned integers, and their dtype is written on the tensor afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen_cc import dtypes

if TYPE_CHECKING:
    import tvm_ffi


def numpy_dtype(name: str) -> np.dtype:
    """The dtype of that name, be it NumPy's own or not."""
    return dtypes.of(name).numpy if name in dtypes.DTYPES else np.dtype(name)


@cache
def name_of(dtype: np.dtype) -> str:
    """The name of a dtype, kept: NumPy takes microseconds to write it."""
    return str(dtype)


def address_of(array: np.ndarray) -> int:
    """Where an array's memory begins; its ``ctypes`` takes three times as long to tell."""
    return array.__array_interface__["data"][0]


def bounds_of(array: np.ndarray) -> tuple[int, int]:
    """Where the memory of a dense array begins and ends, in bytes."""
    start = address_of(array)
    return start, start + array.nbytes


def meets(bounds: tuple[int, int], others: Iterable[tuple[int, int]]) -> bool:
    """Whether memory within these bounds has a byte within others."""
    start, end = bounds
    return any(start < last and first < end for first, last in others)


def tensor_of(array: np.ndarray) -> tvm_ffi.Tensor:
    """A tensor in the memory of a dense, writable array."""
    import tvm_ffi

    if (name := _foreign(array.dtype)) is None:
        return tvm_ffi.from_dlpack(array)
    return _as_dtype(tvm_ffi.from_dlpack(array.view(_bits(array.itemsize))), name)


def array_of(tensor: Any) -> np.ndarray:
    """An array in the memory of a dense tensor that speaks DLPack.

    One that PyTorch negates as it is read (``z.conj().imag``), of which DLPack tells nothing, is
    copied. Raises what its DLPack raises, and what NumPy's does for dtypes that nobody knows.
    """
    import tvm_ffi

    if is_negated(tensor):
        tensor = tensor.resolve_neg()
    name = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
    if name not in dtypes.DTYPES or is_numpys(name):
        return np.from_dlpack(tensor)
    dtype = dtypes.of(name).numpy
    same = tensor if isinstance(tensor, tvm_ffi.Tensor) else tvm_ffi.from_dlpack(tensor)
    return np.from_dlpack(_as_dtype(same, str(_bits(dtype.itemsize)))).view(dtype)


def is_negated(tensor: Any) -> bool:
    """Whether what memory holds has the other sign, as views of PyTorch's may have."""
    told = getattr(tensor, "is_neg", None)
    return told is not None and told()


@cache
def _foreign(dtype: np.dtype) -> str | None:
    """The name of a dtype that is not NumPy's own, kept: NumPy takes microseconds to write it."""
    return None if is_numpys(name_of(dtype)) else name_of(dtype)


def is_numpys(name: str) -> bool:
    """Whether NumPy has the dtype of that name itself."""
    return name not in dtypes.DTYPES or dtypes.of(name).is_numpys


def _bits(size: int) -> np.dtype:
    return np.dtype(f"u{size}")


def _as_dtype(tensor: tvm_ffi.Tensor, dtype: str) -> tvm_ffi.Tensor:
    import tvm_ffi

    view = tvm_ffi.get_global_func("runtime.TVMTensorCreateView")
    return view(tensor, tvm_ffi.Shape(tuple(tensor.shape)), tvm_ffi.dtype(dtype), 0)
