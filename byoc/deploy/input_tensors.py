"""Arrays that a caller gives, checked against the model and handed over without a copy.

What cannot be handed over as it is, for its strides or its place in memory, is copied.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc.deploy.exchange import address_of, array_of, is_negated, name_of, numpy_dtype, tensor_of
from byoc.deploy.metadata import EXTENDED_DTYPES, TensorInfo, extent_of
from byoc.errors import InputError
from codegen_cc.errors import foreign_errors_as

if TYPE_CHECKING:
    import tvm_ffi

    from byoc.extent import Extent

CPU = 1
#: Steps to find out whether two arrays share memory; rooms are dense, and few steps are enough.
_WORK = 100_000
#: Bytes; what TVM's compiled code expects of every tensor, and what kernels are fastest with.
ALIGNMENT = 64


def as_array(info: TensorInfo, value: Any) -> np.ndarray:
    """The memory of one input as an array, not a copy of it. Raises ``InputError``."""
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(
            f"input {info.name!r} is a masked array, whose mask no model reads; need its values, as"
            " value.filled(0) gives"
        )
    if isinstance(value, np.ndarray | np.generic):
        return _with_dtype(info, np.asarray(value))
    if isinstance(value, type) or not hasattr(value, "__dlpack_device__"):
        raise InputError(
            f"input {info.name!r} is a {type(value).__name__}; need a NumPy array or a tensor "
            "that speaks DLPack"
        )
    with foreign_errors_as(InputError, f"taking input {info.name!r} by DLPack"):
        device = tuple(map(int, value.__dlpack_device__()))
        if device[0] != CPU:
            raise InputError(f"input {info.name!r} is on device {device}; need CPU memory")
        return array_of(value)


def _with_dtype(info: TensorInfo, array: np.ndarray) -> np.ndarray:
    """An array of NumPy's files, which hold elements of foreign dtypes as bytes without a name."""
    nameless = array.dtype.kind == "V" and array.dtype.str == str(array.dtype)
    if nameless and info.dtype in EXTENDED_DTYPES:
        dtype = numpy_dtype(info.dtype)
        return array.view(dtype) if array.itemsize == dtype.itemsize else array
    return array


def as_tensor(
    info: TensorInfo,
    value: Any,
    symbols: dict[str, int],
    alignment: int = ALIGNMENT,
    least: int = 0,
) -> tvm_ffi.Tensor:
    """Check one input against the model and hand over its memory, or an aligned copy of it.

    ``symbols`` holds the extents that earlier inputs gave to symbolic axes, which are ``least`` or
    more.
    """
    array = as_array(info, value)
    if name_of(array.dtype) != info.dtype:
        raise InputError(
            f"input {info.name!r} has dtype {array.dtype}; need {info.dtype} (nothing is cast)"
        )
    if array.ndim != len(info.shape):
        raise InputError(
            f"input {info.name!r} has {array.ndim} axes, shape {list(array.shape)}; "
            f"need {len(info.shape)}, shape {_shape(info)}"
        )
    axes = () if array.shape == info.shape else zip(array.shape, info.shape, strict=True)
    for axis, (extent, wanted) in enumerate(axes):
        if (problem := _misfit(axis, extent, wanted, symbols, least)) is not None:
            raise InputError(
                f"input {info.name!r} has shape {list(array.shape)}; need {_shape(info)}{problem}"
            )
    if array.size == 0:
        array = without_elements(array)
    flags = array.flags
    if not flags.c_contiguous or not _is_aligned(array, alignment):
        array = aligned_copy(array)
    elif not flags.writeable:
        array = _as_writable(array)
    return tensor_of(array)


def _is_aligned(array: np.ndarray, alignment: int) -> bool:
    """Whether an array begins at a multiple of both ``alignment`` and the size of an element."""
    if alignment <= 1:
        return array.flags.aligned
    return address_of(array) % max(alignment, array.itemsize) == 0


def _as_writable(array: np.ndarray) -> np.ndarray:
    """The memory of a dense read-only array, which NumPy does not hand out by DLPack.

    Nothing writes into inputs: regions take the place of values of their own alone, and TVM's code
    has rooms for its results.
    """
    memory = (ctypes.c_uint8 * array.nbytes).from_address(array.ctypes.data)
    memory.owner = array  # type: ignore[attr-defined]
    return np.frombuffer(memory, np.uint8).view(array.dtype).reshape(array.shape)


def as_room(info: TensorInfo, value: Any) -> np.ndarray:
    """Check an array that a result shall be written into; it is used as it is.

    Raises ``InputError``.
    """
    if not isinstance(value, np.ndarray):
        if is_negated(value):
            raise InputError(
                f"output {info.name!r}: its room is a negated view; need a plain tensor"
            )
        with foreign_errors_as(InputError, f"taking room for output {info.name!r} by DLPack"):
            value = array_of(value)
    wanted = tuple(info.shape)
    fits = len(value.shape) == len(wanted) and all(
        not isinstance(want, int) or extent == want
        for extent, want in zip(value.shape, wanted, strict=True)
    )
    if str(value.dtype) != info.dtype or not fits:
        raise InputError(
            f"room for output {info.name!r} is {value.dtype}{list(value.shape)}; need {info}"
        )
    if not (value.flags.c_contiguous and value.flags.writeable):
        what = "not contiguous" if value.flags.writeable else "read-only"
        raise InputError(f"room for output {info.name!r} is {what}; give a plain writable array")
    return value


def require_apart(inputs: Mapping[str, np.ndarray], rooms: Mapping[str, np.ndarray]) -> None:
    """Raise ``InputError`` where a result's room has a byte of an input's or another result's.

    Kernels read inputs while they write outputs, in any order.
    """
    names = list(rooms)
    for number, output in enumerate(names):
        for name, array in inputs.items():
            if _share_a_byte(rooms[output], array):
                raise InputError(
                    f"room for output {output!r} overlaps input {name!r}; need memory of its own"
                )
        for other in names[:number]:
            if _share_a_byte(rooms[output], rooms[other]):
                raise InputError(
                    f"rooms for outputs {other!r} and {output!r} overlap; need memory for each"
                )


def _share_a_byte(one: np.ndarray, other: np.ndarray) -> bool:
    try:
        return np.shares_memory(one, other, max_work=_WORK)
    except np.exceptions.TooHardError:
        return True


def aligned_room(shape: tuple[int, ...], dtype: str | np.dtype) -> np.ndarray:
    """An array that is not filled, whose data begin at a multiple of ``ALIGNMENT``."""
    kind = numpy_dtype(dtype) if isinstance(dtype, str) else dtype
    return np.ndarray(shape, kind, *aligned_place(prod(shape) * kind.itemsize))


def aligned_place(size: int) -> tuple[np.ndarray, int]:
    """Memory, and where in it the first multiple of ``ALIGNMENT`` is with ``size`` bytes behind."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    return memory, -address_of(memory) % ALIGNMENT


def sums_in(infos: Iterable[TensorInfo]) -> list[tuple[int, int, Extent]]:
    """The axes of inputs that are sums of symbols: the input's place, the axis, the sum."""
    return [
        (place, axis, extent_of(wanted))
        for place, info in enumerate(infos)
        for axis, wanted in enumerate(info.shape)
        if not isinstance(wanted, int) and extent_of(wanted).others
    ]


def solve_sums(
    sums: Iterable[tuple[int, int, Extent]],
    infos: Sequence[TensorInfo],
    tensors: Sequence[tvm_ffi.Tensor],
    symbols: dict[str, int],
) -> None:
    """Note what symbols are that stand in sums alone, whose other symbols came with later inputs.

    ``sums`` are those of ``sums_in``. Raises ``InputError`` where a symbol would be less than 0, or
    a sum is another one than its symbols'.
    """
    for place, axis, form in sums:
        info, shape = infos[place], list(tensors[place].shape)
        if problem := _misfit_of_sum(axis, shape[axis], form, symbols):
            raise InputError(f"input {info.name!r} has shape {shape}; need {_shape(info)}{problem}")


def _misfit_of_sum(axis: int, extent: int, form: Extent, symbols: dict[str, int]) -> str | None:
    """What ``_misfit`` tells of a sum of symbols; TVM compares it while some are not known."""
    if (found := form.missing(extent, symbols)) is not None and found[1] >= 0:
        symbols[found[0]] = found[1]
        return None
    if found is not None:
        return f"; axis {axis} is {extent} and must be {extent - found[1]} or more"
    if not symbols.keys() >= set(form.names):
        return None
    need = form.within(symbols)
    return None if extent == need else f"; axis {axis} is {extent} and must be {need}"


def _misfit(
    axis: int, extent: int, wanted: int | str, symbols: dict[str, int], least: int
) -> str | None:
    """None if an axis can have the extent, else what else there is to say about it.

    Notes in ``symbols`` what the symbol of a symbolic axis is.
    """
    if isinstance(wanted, int):
        return None if extent == wanted else ""
    form = extent_of(wanted)
    if form.others:
        return _misfit_of_sum(axis, extent, form, symbols)
    value = form.solve(extent)
    if value is not None and value < least:
        return f" with {form.name} of {least} or more, as TVM computes a part of the network"
    if value is None:
        near = " or ".join(map(str, form.nearest(extent)))
        return f"; axis {axis} is {extent} and must be {form}, such as {near}"
    known = symbols.setdefault(form.name, value)
    return None if known == value else f" where {form.name} is {known}"


def _shape(info: TensorInfo) -> str:
    return f"[{', '.join(map(str, info.shape))}]"


def without_elements(array: np.ndarray) -> np.ndarray:
    """An array of the shape with the strides that TVM's functions compute, down to those of 0."""
    strides = [prod(array.shape[axis + 1 :]) * array.itemsize for axis in range(array.ndim)]
    memory = aligned_room((1,), array.dtype)
    return np.lib.stride_tricks.as_strided(memory, array.shape, strides)


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """The same elements, densely, where tensors begin."""
    aligned = aligned_room(array.shape, array.dtype)
    np.copyto(aligned, array)
    return aligned
