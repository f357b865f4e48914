"""quantize, dynamic_quantize and dequantize against numpy: every dtype, order of channels, gap."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_BYTES, KERNEL_DTYPES
from tests.kernels.every import every
from tests.kernels.guard import Rows, at_page_end

#: outer, channels, inner, elements of a gap between outer ones
SHAPES = (
    (1, 1, 1, 0),
    (1, 1, 70001, 0),
    (3, 1, 37, 0),
    (3, 1, 37, 5),
    (5, 7, 1, 0),
    (40000, 3, 1, 2),
    (2, 40000, 1, 0),
    (2, 5, 33, 0),
    (2, 3, 40000, 1),
    (0, 3, 4, 0),
    (2, 0, 4, 0),
)
SPECIAL = [np.nan, np.inf, -np.inf, 0.5, 1.5, 2.5, -0.5, -1.5, 3e38, -3e38, 1e-40, 2147483648.0]
Shape = tuple[int, int, int, int]


def params(shape: Shape, dtype: str) -> abi.QuantiseParams:
    outer, channels, inner, gap = shape
    return abi.QuantiseParams(
        KERNEL_DTYPES.index(dtype), outer, channels, inner, channels * inner + gap
    )


def with_gaps(values: np.ndarray, gap: int) -> np.ndarray:
    """The rows of values, so many elements apart; the last one ends where the memory does."""
    rows = values.reshape(values.shape[0], np.prod(values.shape[1:], dtype=int))
    wide = np.pad(rows, [(0, 0), (0, gap)]).reshape(-1)
    return at_page_end(wide[: wide.size - gap], values.dtype)


def parameters(rng: np.random.Generator, channels: int, dtype: str) -> tuple[np.ndarray, ...]:
    limits = np.iinfo(dtype if dtype != "int32" else "int8")
    scale = rng.uniform(0.01, 2.0, channels)
    return at_page_end(scale), at_page_end(
        rng.integers(limits.min, limits.max + 1, channels), np.dtype(dtype)
    )


def quantized(x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """By ONNX's formula; NaN is the least, as in ONNX Runtime on x86-64."""
    limits = np.iinfo(zero.dtype)
    with np.errstate(all="ignore"):
        whole = np.rint(x / scale[:, None]).astype("float64") + zero[:, None]
    whole = np.where(np.isnan(whole), limits.min, np.clip(whole, limits.min, limits.max))
    return whole.astype(zero.dtype)


@every("dtype", KERNEL_BYTES)
@every("shape", SHAPES, ids=str)
def test_quantize(lib: ctypes.CDLL, shape: Shape, dtype: str) -> None:
    *extents, gap = shape
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(extents) * 100).astype(np.float32)
    if x.size > 40:
        x.reshape(-1)[rng.integers(0, x.size, 40)] = rng.choice(SPECIAL, 40)
    scale, zero = parameters(rng, extents[1], dtype)
    y = at_page_end(np.full(extents, 77), np.dtype(dtype))
    given = with_gaps(x, gap)
    status = lib.ext_quantize(
        params(shape, dtype), given.ctypes.data, scale.ctypes.data, zero.ctypes.data, y.ctypes.data
    )
    assert status == 0
    np.testing.assert_array_equal(y, quantized(x, scale, zero))


@every("dtype", KERNEL_BYTES)
@every("scale", [1.0, 0.0, -0.0, -1.0, np.nan, np.inf, 1e-40, 1e-30])
def test_special_values(lib: ctypes.CDLL, scale: float, dtype: str) -> None:
    x = at_page_end(np.array([*SPECIAL, 0.0, -0.0, 126.5, -128.5, 254.5, 300, -300] * 5))
    scales, zero = at_page_end([scale]), at_page_end([3], np.dtype(dtype))
    y = at_page_end(np.zeros(x.size), np.dtype(dtype))
    p = params((1, 1, x.size, 0), dtype)
    data = (array.ctypes.data for array in (x, scales, zero, y))
    assert lib.ext_quantize(p, *data) == 0
    np.testing.assert_array_equal(y, quantized(x[None], scales, zero)[0])


def by_range(x: np.ndarray) -> tuple[np.ndarray, np.float32, int]:
    """By ONNX's formula in float32; scale 1 for zeros, as in ONNX Runtime."""
    f32 = np.float32
    with np.errstate(all="ignore"):
        high, low = (np.append(x, f32(0)).max(), np.append(x, f32(0)).min())
        scale = f32(1) if high == low else (high - low) / f32(255)
        point = np.clip(f32(0) - low / scale, 0, 255)
        zero = 0 if np.isnan(point) else int(np.rint(point))
    found = quantized(x[None], np.array([scale]), np.array([zero], np.uint8))
    return found[0], scale, zero


@pytest.mark.slow
@every("size", [0, 1, 15, 64, 65, 127, 1000, 70001, 3000001])
@every("kind", ["normal", "positive", "negative", "zero", "tiny", "ends"])
def test_dynamic_quantize(lib: ctypes.CDLL, size: int, kind: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal(size).astype(np.float32)
    x = {"positive": abs(x), "negative": -abs(x), "zero": 0 * x, "tiny": x * 1e-43}.get(kind, x)
    if kind == "ends" and size:
        x[[0, -1]] = 9, -7
    given, y = at_page_end(x), at_page_end(np.full(size, 77), np.uint8)
    scale, zero = at_page_end([np.nan]), at_page_end([77], np.uint8)
    data = (array.ctypes.data for array in (given, y, scale, zero))
    assert lib.ext_dynamic_quantize(size, *data) == 0
    wanted, *numbers = by_range(given)
    assert [scale[0], zero[0]] == numbers
    np.testing.assert_array_equal(y, wanted)


@every("odd", [np.nan, np.inf, -np.inf])
@every("place", [0, 17, 99, 40000])
def test_dynamic_quantize_of_special_values(lib: ctypes.CDLL, place: int, odd: float) -> None:
    x = np.random.default_rng(4).standard_normal(40003)
    x[place] = odd
    given, y = at_page_end(x), at_page_end(np.zeros(x.size), np.uint8)
    scale, zero = at_page_end([0.0]), at_page_end([77], np.uint8)
    data = (array.ctypes.data for array in (given, y, scale, zero))
    assert lib.ext_dynamic_quantize(x.size, *data) == 0
    wanted, *numbers = by_range(given)
    np.testing.assert_array_equal([scale[0], zero[0]], numbers)
    np.testing.assert_array_equal(y, wanted)


@every("dtype", [*KERNEL_BYTES, "int32"])
@every("shape", SHAPES, ids=str)
def test_dequantize(lib: ctypes.CDLL, shape: Shape, dtype: str) -> None:
    *extents, gap = shape
    rng = np.random.default_rng(2)
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min // 2, limits.max, extents).astype(dtype)
    scale, zero = parameters(rng, extents[1], dtype)
    y = Rows(1, x.size)
    given = with_gaps(x, gap)
    status = lib.ext_dequantize(
        params(shape, dtype), given.ctypes.data, scale.ctypes.data, zero.ctypes.data, y.pointer
    )
    assert status == 0
    whole = x.astype(np.int64) - zero.astype(np.int64)[:, None]
    want = whole.astype(np.float32) * scale[:, None]
    np.testing.assert_array_equal(y.view[0], want.reshape(-1))
    y.check_gaps()


def test_other_dtypes_are_refused(lib: ctypes.CDLL) -> None:
    for dtype in set(KERNEL_DTYPES) - set(KERNEL_BYTES):
        assert lib.ext_quantize(params((1, 1, 1, 0), dtype), None, None, None, None) == 2
        if dtype != "int32":
            assert lib.ext_dequantize(params((1, 1, 1, 0), dtype), None, None, None, None) == 2
