"""compare, where, cast, take and integer arithmetic against numpy: every dtype that there is."""

from __future__ import annotations

import ctypes

import numpy as np

from benchmarks import abi
from codegen_cc.dtypes import (
    DTYPES,
    KERNEL_DTYPES,
    KERNEL_HALVES,
    KERNEL_INTEGERS,
    KERNEL_NUMBERS,
)
from tests.kernels import cases
from tests.kernels.every import every
from tests.kernels.guard import at_page_end

NUMPY = {name: np.uint8 if name == "bool" else DTYPES[name].numpy.type for name in KERNEL_DTYPES}
COMPARE = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
INTEGER = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
Broadcast = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _values(rng: np.random.Generator, shape: list[int], dtype: str) -> np.ndarray:
    """Few different values, so that equal ones meet; NaN and infinity among the floats."""
    if dtype == "bool":
        return rng.integers(0, 2, shape)
    if DTYPES[dtype].kind == "float":
        return rng.choice([-1.5, 0, -0.0, 2, np.nan, np.inf, -np.inf], shape)
    if dtype == "uint8":
        return rng.choice([0, 1, 100, 127, 128, 255], shape)
    return rng.integers(-3, 4, shape) * (1 << {"int8": 5, "int32": 20, "int64": 40}[dtype])


def _operand(
    rng: np.random.Generator, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str
) -> np.ndarray:
    own = [1 if d in axes else size for d, size in enumerate(shape)]
    return np.broadcast_to(at_page_end(_values(rng, own, dtype), NUMPY[dtype]), shape)


def _strides(array: np.ndarray) -> list[int]:
    return [stride // array.itemsize for stride in array.strides]


def _bits(array: np.ndarray) -> np.ndarray:
    """What lies in memory: NumPy knows of no NaN that is not of its own dtypes."""
    return array.view(f"u{array.itemsize}")


@every("dtype", KERNEL_NUMBERS)
@every("case", cases.BINARY, ids=str)
def test_compare(lib: ctypes.CDLL, case: Broadcast, dtype: str) -> None:
    shape, a_axes, b_axes = case
    rng = np.random.default_rng(1)
    a, b = _operand(rng, shape, a_axes, dtype), _operand(rng, shape, b_axes, dtype)
    for kind, function in COMPARE.items():
        if kind in ("and", "or", "xor") and dtype != "bool":
            continue
        y = at_page_end(np.full(shape, 77), np.uint8)
        p = abi.CompareParams(abi.COMPARE_KIND.index(kind), KERNEL_DTYPES.index(dtype), len(shape))
        p.shape[: a.ndim] = shape
        p.a_strides[: a.ndim], p.b_strides[: a.ndim] = _strides(a), _strides(b)
        assert lib.ext_compare(p, a.ctypes.data, b.ctypes.data, y.ctypes.data) == 0
        np.testing.assert_array_equal(y, function(a, b), err_msg=kind)


def test_logic_of_numbers_is_refused(lib: ctypes.CDLL) -> None:
    p = abi.CompareParams(abi.COMPARE_KIND.index("and"), KERNEL_DTYPES.index("int32"), 1)
    assert lib.ext_compare(p, None, None, None) == 2


def test_floats_of_16_bits_are_not_compared(lib: ctypes.CDLL) -> None:
    for dtype in KERNEL_HALVES:
        p = abi.CompareParams(0, KERNEL_DTYPES.index(dtype), 1)
        assert lib.ext_compare(p, None, None, None) == 2


@every("dtype", KERNEL_DTYPES)
@every("c_axes", [(), (0,), (-1,)], ids=["full", "broadcast", "broadcast along the last axis"])
@every("case", cases.BINARY, ids=str)
def test_where(lib: ctypes.CDLL, case: Broadcast, c_axes: tuple[int, ...], dtype: str) -> None:
    shape, a_axes, b_axes = case
    rng = np.random.default_rng(2)
    c = _operand(rng, shape, tuple(axis % len(shape) for axis in c_axes), "bool")
    a, b = _operand(rng, shape, a_axes, dtype), _operand(rng, shape, b_axes, dtype)
    y = at_page_end(np.full(shape, 77), NUMPY[dtype])
    p = abi.WhereParams(y.itemsize, len(shape))
    p.shape[: a.ndim] = shape
    p.c_strides[: a.ndim] = _strides(c)
    p.a_strides[: a.ndim], p.b_strides[: a.ndim] = _strides(a), _strides(b)
    assert lib.ext_where(p, c.ctypes.data, a.ctypes.data, b.ctypes.data, y.ctypes.data) == 0
    np.testing.assert_array_equal(_bits(y), _bits(np.where(c, a, b)))


@every("dtype", KERNEL_INTEGERS)
@every("case", cases.BINARY, ids=str)
def test_integer_arithmetic_wraps_around(lib: ctypes.CDLL, case: Broadcast, dtype: str) -> None:
    shape, a_axes, b_axes = case
    rng = np.random.default_rng(3)
    a, b = _operand(rng, shape, a_axes, dtype), _operand(rng, shape, b_axes, dtype)
    for kind, function in INTEGER.items():
        y = at_page_end(np.full(shape, 77), NUMPY[dtype])
        p = abi.BinaryParams(abi.BINARY_KIND.index(kind), abi.activation(), len(shape))
        p.dtype = KERNEL_DTYPES.index(dtype)
        p.shape[: a.ndim] = shape
        p.a_strides[: a.ndim], p.b_strides[: a.ndim] = _strides(a), _strides(b)
        assert lib.ext_binary(p, a.ctypes.data, b.ctypes.data, y.ctypes.data) == 0
        np.testing.assert_array_equal(y, function(a, b), err_msg=kind)


#: What is divided by 0 is 0, as NumPy has it too; numbers are shifted by up to their width alone.
WHOLE = {
    "mod": np.fmod,
    "floor_div": np.floor_divide,
    "floor_mod": np.remainder,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
}


@every("dtype", KERNEL_INTEGERS)
def test_divisions_and_bits_of_integers(lib: ctypes.CDLL, dtype: str) -> None:
    info = np.iinfo(dtype)
    own = [info.min, info.min + 1, info.max, 0, 1, 2, 7, 100, *((-1, -7) if info.min else ())]
    a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(*[np.array(own, dtype)] * 2))
    for kind, function in WHOLE.items():
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(_of_two(lib, kind, a, b), function(a, b), kind)


@every("dtype", KERNEL_INTEGERS)
def test_shifts(lib: ctypes.CDLL, dtype: str) -> None:
    """By their width and more, and by less than 0, only the sign is left to the right."""
    info = np.iinfo(dtype)
    a = np.array([info.min, info.max, 0, 1, 5, 100], dtype)
    signs = np.where(a < 0, -1, 0).astype(dtype)
    for by in (0, 1, 3, info.bits - 1, info.bits, info.bits + 1, 100, *((-1, -9) * (info.min < 0))):
        beyond, b = not 0 <= by < info.bits, np.full_like(a, by)
        left = np.zeros_like(a) if beyond else np.left_shift(a, b)
        right = signs if beyond else np.right_shift(a, b)
        np.testing.assert_array_equal(_of_two(lib, "shift_left", a, b), left, str(by))
        np.testing.assert_array_equal(_of_two(lib, "shift_right", a, b), right, str(by))


def _of_two(lib: ctypes.CDLL, kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What the kernel makes of two vectors of integers."""
    y = np.full_like(a, 77)
    p = abi.BinaryParams(abi.BINARY_KIND.index(kind), abi.activation(), 1)
    p.dtype = KERNEL_DTYPES.index(a.dtype.name)
    p.shape[0], p.a_strides[0], p.b_strides[0] = a.size, 1, 1
    assert lib.ext_binary(p, a.ctypes.data, b.ctypes.data, y.ctypes.data) == 0
    return y


def test_bits_of_floats_are_refused(lib: ctypes.CDLL) -> None:
    for kind in ("bit_and", "floor_mod", "shift_left"):
        p = abi.BinaryParams(abi.BINARY_KIND.index(kind), abi.activation(), 1)
        assert lib.ext_binary(p, None, None, None) == 2


@every(("kind", "after"), [("pow", "identity"), ("add", "relu")])
def test_what_integers_do_not_have_is_refused(lib: ctypes.CDLL, kind: str, after: str) -> None:
    p = abi.BinaryParams(abi.BINARY_KIND.index(kind), abi.activation(after), 1, dtype=1)
    p.shape[0] = 1
    assert lib.ext_binary(p, None, None, None) == 2


@every("n", [0, 1, 5, 16, 33, 70000])
@every("to", KERNEL_DTYPES)
@every("source", KERNEL_DTYPES)
def test_cast(lib: ctypes.CDLL, source: str, to: str, n: int) -> None:
    rng = np.random.default_rng(4)
    least, most = {"bool": (0, 2), "int8": (-128, 128), "uint8": (0, 256)}.get(source, (-900, 900))
    values = rng.integers(least, most, n)
    is_float = DTYPES[source].kind == "float"
    x = at_page_end(values / 3 if is_float else values, NUMPY[source])
    y = at_page_end(np.full(n, 77), NUMPY[to])
    codes = (KERNEL_DTYPES.index(source), KERNEL_DTYPES.index(to))
    assert lib.ext_cast(*codes, n, x.ctypes.data, y.ctypes.data) == 0
    # To fewer bits by way of 32: what does not fit wraps, where C leaves it open.
    whole = x.astype(np.int64) if DTYPES[to].bits == 8 else x
    np.testing.assert_array_equal(y, x != 0 if to == "bool" else whole.astype(NUMPY[to]))


@every("to", ["int8", "uint8"])
def test_fractions_out_of_range_wrap(lib: ctypes.CDLL, to: str) -> None:
    """As ONNX Runtime and TVM's importer have it; all fit into 32 bits."""
    x = np.array([300, -1.9, -129.5, 255.9, 1e5, -1e5, 2e9, -2e9] * 5, np.float32)
    y = np.empty(x.size, to)
    assert lib.ext_cast(0, KERNEL_DTYPES.index(to), x.size, x.ctypes.data, y.ctypes.data) == 0
    np.testing.assert_array_equal(y, x.astype(np.int32).astype(to))


@every("far", [0, 255, 256, 511])
@every("to", ["int8", "uint8", "int32", "int64"])
def test_what_has_no_integer(lib: ctypes.CDLL, to: str, far: int) -> None:
    """What is none is 0, and what 64 bits have no room for their lowest number."""
    for number, wide in (
        (np.nan, 0),
        (np.inf, 0),
        (-np.inf, 0),
        (1e30, -(2**63)),
        (3e9, 3 * 10**9),
    ):
        x = np.linspace(-90, 90, 600, dtype=np.float32)
        x[far] = number
        y = np.empty(x.size, to)
        assert lib.ext_cast(0, KERNEL_DTYPES.index(to), x.size, x.ctypes.data, y.ctypes.data) == 0
        expected = np.where(np.arange(x.size) == far, 0, x).astype(np.int64)
        expected[far] = wide
        np.testing.assert_array_equal(y, expected.astype(to))


@every("n", [0, 1, 5, 16, 33, 70000])
@every("dtype", ["float32", "int32", "int64"])
def test_arange(lib: ctypes.CDLL, dtype: str, n: int) -> None:
    y = at_page_end(np.full(n, 77), NUMPY[dtype])
    assert lib.ext_arange(KERNEL_DTYPES.index(dtype), n, y.ctypes.data) == 0
    np.testing.assert_array_equal(y, np.arange(n, dtype=dtype))
    for refused in ("bool", "int8", "uint8", *KERNEL_HALVES):
        assert lib.ext_arange(KERNEL_DTYPES.index(refused), n, y.ctypes.data) == 2


@every("count", [0, 1, 3, 8])
def test_sizes(lib: ctypes.CDLL, count: int) -> None:
    y, sizes = at_page_end(np.full(count, -1), np.int64), [0, 1, 2**40, -3, 5, 6, 7, 8]
    params = abi.SizesParams(count, (ctypes.c_int64 * 8)(*sizes))
    assert lib.ext_sizes(params, y.ctypes.data) == 0
    np.testing.assert_array_equal(y, sizes[:count])
    assert lib.ext_sizes(abi.SizesParams(9), y.ctypes.data) == 2


def test_not_a_number_is_true_and_zeros_are_false(lib: ctypes.CDLL) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e-45, 0.0, -0.0], np.float32)
    y = np.empty(x.size, np.uint8)
    assert lib.ext_cast(0, 3, x.size, x.ctypes.data, y.ctypes.data) == 0
    assert y.tolist() == [1, 1, 1, 1, 0, 0]


def test_unknown_dtype_is_refused(lib: ctypes.CDLL) -> None:
    assert lib.ext_cast(len(KERNEL_DTYPES), 0, 0, None, None) == 2
    assert lib.ext_cast(0, -1, 0, None, None) == 2


TAKE = (
    (1, 10, 8, 5),
    (3, 7, 1, 20),
    (2, 5, 33, 4),
    (1, 100, 768, 128),
    (2, 1, 3, 2),
    (0, 4, 4, 4),
    (4, 4, 4, 0),
    (4, 4, 0, 4),
)


def _take_params(shape: tuple[int, int, int, int], dtype: str, indices: str) -> abi.TakeParams:
    size = np.dtype(NUMPY[dtype]).itemsize
    return abi.TakeParams(*shape, size, KERNEL_DTYPES.index(indices))


@every("indices", ["int32", "int64"])
@every("dtype", KERNEL_DTYPES)
@every("shape", TAKE, ids=str)
def test_take(lib: ctypes.CDLL, shape: tuple[int, int, int, int], dtype: str, indices: str) -> None:
    outer, extent, inner, count = shape
    rng = np.random.default_rng(5)
    x = at_page_end(_values(rng, [outer, extent, inner], dtype), NUMPY[dtype])
    where = at_page_end(rng.integers(-extent, extent, count), NUMPY[indices])
    y = at_page_end(np.full((outer, count, inner), 77), NUMPY[dtype])
    p = _take_params(shape, dtype, indices)
    assert lib.ext_take(p, x.ctypes.data, where.ctypes.data, y.ctypes.data) == 0
    np.testing.assert_array_equal(_bits(y), _bits(np.take(x, where, axis=1)))


@every("index", [7, -8, 1 << 31, -(1 << 62)])
def test_an_index_outside_is_an_error(lib: ctypes.CDLL, index: int) -> None:
    x = at_page_end(np.zeros((7, 4)))
    where = np.array([0, 1, index], np.int64)
    y = np.empty((3, 4), np.float32)
    p = _take_params((1, 7, 4, 3), "float32", "int64")
    status = lib.ext_take(p, x.ctypes.data, where.ctypes.data, y.ctypes.data)
    assert status == 4
    assert lib.ext_status_string(status) == b"an index lies outside of the axis that it indexes"
