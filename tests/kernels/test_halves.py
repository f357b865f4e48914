"""Casts from and to floats of 16 bits, bit by bit against NumPy and ml_dtypes."""

from __future__ import annotations

import ctypes

import numpy as np

from codegen_cc.dtypes import DTYPES, KERNEL_DTYPES, KERNEL_HALVES
from tests.kernels.every import every
from tests.kernels.guard import at_page_end

FLOAT32 = KERNEL_DTYPES.index("float32")


def _cast(lib: ctypes.CDLL, x: np.ndarray, source: str, target: str) -> np.ndarray:
    x, y = at_page_end(x, x.dtype), at_page_end(np.zeros(x.size), DTYPES[target].numpy)
    codes = (KERNEL_DTYPES.index(source), KERNEL_DTYPES.index(target))
    assert lib.ext_cast(*codes, x.size, x.ctypes.data, y.ctypes.data) == 0
    return y


def _all(dtype: str) -> np.ndarray:
    """All values that there are."""
    return np.arange(1 << 16, dtype=np.uint16).view(DTYPES[dtype].numpy)


@every("dtype", KERNEL_HALVES)
def test_all_values_become_float32_exactly(lib: ctypes.CDLL, dtype: str) -> None:
    x = _all(dtype)
    np.testing.assert_array_equal(_cast(lib, x, dtype, "float32"), x.astype(np.float32))


@every("dtype", KERNEL_HALVES)
def test_float32_is_rounded_to_the_nearest_and_even(lib: ctypes.CDLL, dtype: str) -> None:
    """At every value, at the middle between it and the next, and one step beside these."""
    x = _all(dtype).astype(np.float32)
    bits = x[np.isfinite(x)].view(np.uint32).astype(np.int64)
    dropped = 13 if dtype == "float16" else 16
    near = [bits + moved for middle in (0, 1 << (dropped - 1)) for moved in (middle - 1, middle)]
    near.append(bits + (1 << (dropped - 1)) + 1)
    near.append(np.random.default_rng(0).integers(0, 1 << 32, 1 << 16))
    values = (np.concatenate(near) & 0xFFFFFFFF).astype(np.uint32).view(np.float32)
    steps = np.arange(-4096, 4096, dtype=np.float32) * np.float32(2.0**-27)  # subnormal float16
    special = np.float32([0.0, -0.0, np.inf, -np.inf, 65504, 65519.996, 65520, 3.4e38, 1e-40])
    x = np.concatenate([values, steps, special])
    with np.errstate(over="ignore"):
        want = x.astype(DTYPES[dtype].numpy)
    got = _cast(lib, x, "float32", dtype)
    is_nan = np.isnan(x)
    np.testing.assert_array_equal(got.view(np.uint16)[~is_nan], want.view(np.uint16)[~is_nan])
    assert np.isnan(got[is_nan].astype(np.float32)).all()


@every("dtype", KERNEL_HALVES)
def test_not_a_number_stays_so_whatever_its_bits(lib: ctypes.CDLL, dtype: str) -> None:
    bits = np.array([0x7F800001, 0x7FC00000, 0xFFFFFFFF, 0x7F801FFF, 0xFF80FFFF], np.uint32)
    got = _cast(lib, bits.view(np.float32), "float32", dtype).astype(np.float32)
    assert np.isnan(got).all() and (np.signbit(got) == (bits >> 31).astype(bool)).all()


def test_one_to_the_other_and_to_truth_values(lib: ctypes.CDLL) -> None:
    x = _all("float16")
    other = DTYPES["bfloat16"].numpy
    got, want = _cast(lib, x, "float16", "bfloat16"), x.astype(np.float32).astype(other)
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
    for dtype in KERNEL_HALVES:
        x = _all(dtype)
        got = _cast(lib, x, dtype, "bool")
        np.testing.assert_array_equal(got, x.astype(np.float32) != 0)


def test_whole_numbers(lib: ctypes.CDLL) -> None:
    x = np.array([0, 1, -1, 2047, 2049, 2051, -65504, 65519, 65520, 1 << 40], np.int64)
    for dtype in KERNEL_HALVES:
        with np.errstate(over="ignore"):
            want = x.astype(np.float32).astype(DTYPES[dtype].numpy)
        np.testing.assert_array_equal(_cast(lib, x, "int64", dtype), want)
