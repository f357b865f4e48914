"""Tensors of the Open Inference Protocol as arrays and back.

A request's input has a name, a datatype such as ``FP32``, a shape, and elements in row-major order,
as a flat list or nested as the shape is.  Nothing is cast: what is written as another kind of
number than the datatype says, or does not fit into it, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from byoc.deploy.exchange import numpy_dtype
from byoc.deploy.metadata import TensorInfo
from byoc.errors import InputError

_KINDS = {"FP": "f", "INT": "i", "UINT": "u"}
_LETTERS = {letter: name for name, letter in _KINDS.items()}


def datatype_of(info: TensorInfo) -> str:
    """The protocol's name of a tensor's dtype. Raises ``InputError`` where it has none."""
    dtype = numpy_dtype(info.dtype)
    if dtype.kind == "b":
        return "BOOL"
    if dtype.kind not in _LETTERS:
        raise InputError(f"{info}: the protocol has no datatype for it")
    return f"{_LETTERS[dtype.kind]}{8 * dtype.itemsize}"


def shape_of(info: TensorInfo) -> list[int]:
    """A tensor's shape as the protocol has it, with -1 for symbolic axes."""
    return [extent if isinstance(extent, int) else -1 for extent in info.shape]


def array_of_input(name: str, datatype: str, shape: Sequence[int], data: Any) -> np.ndarray:
    """The elements of an input of a request. Raises ``InputError``."""
    dtype = _dtype(name, datatype)
    _require_extents(name, shape)
    try:
        found = np.asarray(data)
    except ValueError:
        raise InputError(f"input {name!r} has rows of different lengths") from None
    if found.size != prod(shape):
        raise InputError(
            f"input {name!r} has {found.size} elements; shape {list(shape)} needs {prod(shape)}"
        )
    if found.size:
        found = _as_kind(name, found, dtype, datatype)
    return found.astype(dtype).reshape(shape)


def require_bytes(inputs: Sequence[Any], contents: Sequence[bytes]) -> None:
    """Raise ``InputError`` unless ``contents`` are the elements of these inputs, in order.

    Inputs have a name, a datatype and a shape. Texts, whose length says nothing, are refused.
    """
    if len(contents) != len(inputs):
        names = ", ".join(repr(one.name) for one in inputs) or "no input"
        raise InputError(f"{len(contents)} raw contents for {names}; need one for each")
    for one, content in zip(inputs, contents, strict=True):
        datatype = getattr(one.datatype, "value", one.datatype)
        dtype, shape = _dtype(one.name, datatype), list(one.shape)
        _require_extents(one.name, shape)
        if len(content) != prod(shape) * dtype.itemsize:
            raise InputError(
                f"input {one.name!r} has {len(content)} bytes; {datatype}{shape} needs "
                f"{prod(shape) * dtype.itemsize}"
            )


def _require_extents(name: str, shape: Sequence[int]) -> None:
    if any(extent < 0 for extent in shape):
        raise InputError(f"input {name!r} has shape {list(shape)}; need extents of 0 or more")


def _dtype(name: str, datatype: str) -> np.dtype:
    if datatype == "BOOL":
        return np.dtype(bool)
    found = re.fullmatch(r"([A-Z]+)(8|16|32|64)", datatype)
    if found is None or found[1] not in _KINDS or (found[1] == "FP" and found[2] == "8"):
        raise InputError(f"input {name!r} has datatype {datatype}; need a number's, such as FP32")
    return np.dtype(f"{_KINDS[found[1]]}{int(found[2]) // 8}")


def _as_kind(name: str, found: np.ndarray, dtype: np.dtype, datatype: str) -> np.ndarray:
    """Elements that are all of the datatype's kind; in JSON, null stands for NaN."""
    if found.dtype.kind == "O" and dtype.kind == "f":
        found = np.array([np.nan if one is None else one for one in found.ravel()])
    allowed = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}[dtype.kind]
    if found.dtype.kind not in allowed:
        raise InputError(f"input {name!r} has elements that are no {datatype}; nothing is cast")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low, high = int(found.min()), int(found.max())
        if low < limits.min or high > limits.max:
            raise InputError(
                f"input {name!r} has elements from {low} to {high}; {datatype} holds "
                f"{limits.min} to {limits.max}"
            )
    return found
